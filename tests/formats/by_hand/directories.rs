//! Directories in states that libtiledb does not leave behind.

use super::*;
use crate::common::names;

/// The reason why the only hidden fragment is hidden.
fn reason(tree: &Tree) -> String {
    let list = document(tree, "fragments.json");
    let hidden: Vec<&Value> = list
        .as_array()
        .unwrap()
        .iter()
        .filter(|f| f["visible"] == false)
        .collect();
    assert_eq!(hidden.len(), 1, "{list:#}");
    hidden[0]["reason"].as_str().unwrap().to_owned()
}

fn rename(root: &Path, from: &str, to: &str) {
    fs::rename(
        root.join("__fragments").join(from),
        root.join("__fragments").join(to),
    )
    .unwrap();
    fs::remove_file(root.join(format!("__commits/{from}.wrt"))).unwrap();
}

#[test]
fn fragments_of_the_future_ignored_and_uncommitted_ones() {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    let name = write_sparse(root, 22, Domain::Known);
    // Sparse fragments count from the start of their time range on.
    let later = format!("__5_32503680000000_{UUID}_22");
    rename(root, &name, &later);
    put(root, &format!("__commits/{later}.wrt"), b"");
    assert_eq!(document(&open(root), "fragments.json")[0]["visible"], true);
    let future = format!("__32503680000000_32503680000000_{UUID}_22");
    rename(root, &later, &future);
    put(root, &format!("__commits/{future}.wrt"), b"");
    assert_eq!(
        reason(&open(root)),
        "in the future: its timestamps are 32503680000000 to 32503680000000"
    );
    // Its columns are there nevertheless.
    check_sparse(&open(root), &future);

    rename(root, &future, &name);
    assert_eq!(
        reason(&open(root)),
        format!("uncommitted: there is no {name}.wrt")
    );
    let con = format!("__5_5_{OTHER}_22.con");
    put(root, &format!("__commits/{con}"), b"damaged\n");
    assert_eq!(
        reason(&open(root)),
        format!("uncommitted: there is no {name}.wrt, and {con}, which may stand for it, cannot be read")
    );
    put(
        root,
        &format!("__commits/{con}"),
        format!("__commits/{name}.wrt\n").as_bytes(),
    );
    let list = document(&open(root), "fragments.json");
    assert_eq!(
        (&list[0]["visible"], &list[0]["reason"]),
        (&json!(true), &Value::Null)
    );
    put(
        root,
        &format!("__commits/__5_5_{OTHER}_22.ign"),
        format!("__commits/{name}.wrt\n").as_bytes(),
    );
    assert!(reason(&open(root)).starts_with("ignored: "));
}

#[test]
fn vacuum_files_name_what_they_hide_in_all_ways() {
    for line in [
        "/__fragments/NAME",
        "__fragments/NAME",
        "file:///somewhere/else/__fragments/NAME/",
        "s3://bucket/array/__fragments/NAME",
    ] {
        let dir = TempDir::new().unwrap();
        let name = write_sparse(dir.path(), 22, Domain::Known);
        let by = format!("__5_9_{OTHER}_22");
        let vacuum = format!("{}\n", line.replace("NAME", &name));
        put(dir.path(), &format!("__commits/{by}.vac"), vacuum.as_bytes());
        assert_eq!(
            reason(&open(dir.path())),
            format!("vacuumed: replaced by {by}"),
            "{line}"
        );
        // A vacuum file of the future hides nothing.
        let from = dir.path().join(format!("__commits/{by}.vac"));
        fs::rename(
            from,
            dir.path().join(format!(
                "__commits/__32503680000000_32503680000001_{OTHER}_22.vac"
            )),
        )
        .unwrap();
        assert_eq!(document(&open(dir.path()), "fragments.json")[0]["visible"], true);
    }
}

/// What `data/view.json` says of a range of time: why `data/` cannot be read.
fn incomplete(tree: &Tree, at: &str) -> Option<String> {
    let view = document(tree, &format!("{at}data/view.json"));
    view["error"].as_str().map(str::to_owned)
}

#[test]
fn a_committed_fragment_that_is_missing_is_missing_wherever_a_part_of_it_is_seen() {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    write_sparse(root, 22, Domain::Known);
    let lost = format!("__10_20_{OTHER}_22");
    put(root, &format!("__commits/{lost}.wrt"), b"");
    for (at, fails) in [
        ("", true),
        ("at/15/", true),
        ("at/10/", true),
        ("at/9/", false),
        ("at/21..30/", false),
    ] {
        let error = incomplete(&open(root), at);
        let told = error
            .as_ref()
            .is_some_and(|error| error.contains("is committed but missing"));
        assert_eq!(told, fails, "{at}: {error:?}");
    }
    // As TileDB does without what a vacuum file lists.
    let by = format!("__10_30_{UUID}_22");
    put(
        root,
        &format!("__commits/{by}.vac"),
        format!("__fragments/{lost}\n").as_bytes(),
    );
    assert_eq!(incomplete(&open(root), ""), None);
    put(root, &format!("__commits/{by}.wrt"), b"");
    assert!(incomplete(&open(root), "").is_some());
}

#[test]
fn what_is_foreign_or_from_an_experiment_does_not_disturb_the_rest() {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    let name = write_sparse(root, 22, Domain::Known);
    let experiment = format!("__7_7_{UUID}_2147483670");
    for path in [
        "README".to_owned(),
        "directory/file".to_owned(),
        format!("__8_8_{UUID}_22.tmp"),
        format!("__fragments/{experiment}/__fragment_metadata.tdb"),
        "__fragments/.staging/x".to_owned(),
        "__fragments/file".to_owned(),
        format!("__commits/{experiment}.wrt"),
        "__commits/notes".to_owned(),
        format!("__schema/__9_9_{UUID}.tmp"),
        "__schema/notes".to_owned(),
        format!("__meta/__9_9_{UUID}.tmp"),
        "__meta/notes".to_owned(),
        "__fragment_meta/notes".to_owned(),
    ] {
        put(root, &path, b"?");
    }
    let tree = open(root);
    check_sparse(&tree, &name);
    assert_eq!(names(&tree.root, "fragments"), [name]);
    assert_eq!(names(&tree.root, "schemas"), [format!("__1_1_{UUID}.json")]);
    assert_eq!(document(&tree, "metadata.json"), json!({}));
    assert_eq!(document(&tree, "consolidated_metadata.json"), json!([]));
    assert!(
        document(&tree, "commits.json")
            .as_array()
            .unwrap()
            .iter()
            .all(|c| c["error"].is_null())
    );
    assert!(tree.errors.snapshot().0.is_empty());
}

#[test]
fn consolidated_metadata_that_does_not_fit() {
    let dir = TempDir::new().unwrap();
    let root: PathBuf = dir.path().into();
    let name = write_sparse(&root, 22, Domain::Known);
    let position = document(&open(&root), &format!("fragments/{name}/footer.json"));
    let file = fs::read(root.join(format!("__fragments/{name}/__fragment_metadata.tdb"))).unwrap();
    let start = position["footer_offset"].as_u64().unwrap() as usize;
    let own = &file[start..start + position["footer_size"].as_u64().unwrap() as usize];
    let gone = format!("__1_1_{OTHER}_22");
    let mut wrong = own.to_vec();
    // The end of the non-empty domain: after version, name and its length, two flags, its start.
    let at = 4 + 8 + 6 + 32 + 2 + 4;
    assert_eq!(wrong[at], 50);
    wrong[at] = 51;
    let cases = [
        (&name, own),
        (&name, &wrong[..]),
        (&name, &own[..40]),
        (&gone, own),
    ];
    let mut offset = 4 + cases.iter().map(|(name, _)| 16 + name.len() as u64).sum::<u64>();
    let mut body = Bytes::default().u32(cases.len() as u32);
    for (name, footer) in &cases {
        body = body.text64(name).u64(offset);
        offset += footer.len() as u64;
    }
    let body = cases.iter().fold(body, |body, (_, footer)| body.raw(footer));
    put(
        &root,
        &format!("__fragment_meta/__1_5_{OTHER}_22.meta"),
        &generic(22, &body.0),
    );
    put(
        &root,
        &format!("__fragment_meta/__2_5_{OTHER}_22.meta"),
        b"damaged",
    );
    let tree = open(&root);
    let files = document(&tree, "consolidated_metadata.json");
    assert!(files[1]["error"].is_string() && files[1]["fragments"].is_null());
    let fragments = files[0]["fragments"].as_array().unwrap();
    let difference = |i: usize| fragments[i]["difference"].as_str().unwrap_or_default();
    assert_eq!(
        (&fragments[0]["matches"], &fragments[0]["difference"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(fragments[1]["matches"], false);
    assert_eq!(
        difference(1),
        "non_empty_domain: [[3,51]] here, [[3,50]] in the fragment's own footer"
    );
    assert_eq!(fragments[2]["matches"], false);
    assert!(
        difference(2).starts_with("not a footer of this fragment: "),
        "{}",
        difference(2)
    );
    assert_eq!(fragments[3]["matches"], Value::Null);
    assert!(
        difference(3).contains("there is no such fragment"),
        "{}",
        difference(3)
    );
    assert_eq!(fragments[3]["footer"]["non_empty_domain"], json!([[3, 50]]));
    assert_eq!(
        document(&tree, "fragments.json")[0]["has_consolidated_metadata"],
        true
    );
}
