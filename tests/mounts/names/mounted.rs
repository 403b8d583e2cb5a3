//! Difficult names through a mount.

use super::*;

/// A mounted source on disk, made by `fill`.
struct Place {
    // Fields are dropped in order: unmounting comes before removing the directory.
    _mounted: Mounted,
    mnt: TempDir,
    _source: TempDir,
}

impl Place {
    fn new(follow_symlinks: bool, fill: impl FnOnce(&Path)) -> Self {
        let (source, mnt) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let inside = source.path().canonicalize().unwrap().join("in");
        fs::create_dir(&inside).unwrap();
        fill(&inside);
        let options = TreeOptions {
            cache_size: 1 << 20,
            keys: Vec::new(),
            follow_symlinks,
            ..TreeOptions::default()
        };
        let tree = Tree::open(&inside, &options).unwrap();
        Place {
            _mounted: mount(FileSystem::new(tree), mnt.path(), &MountOptions::default()).unwrap(),
            mnt,
            _source: source,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mnt.path().join(name)
    }

    /// The names in a directory, in order.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Every listed name can be looked up, has the listed kind, is unique, opens, and reads to its length.
    /// Returns the number of names.
    fn look(&self) -> usize {
        let mut count = 0;
        let mut waiting = vec![self.mnt.path().to_path_buf()];
        while let Some(folder) = waiting.pop() {
            let mut names = HashSet::new();
            for entry in fs::read_dir(&folder).unwrap() {
                let entry = entry.unwrap();
                let path = entry.path();
                assert!(
                    names.insert(entry.file_name()),
                    "{} is there twice",
                    path.display()
                );
                let metadata = fs::symlink_metadata(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
                assert_eq!(metadata.file_type(), entry.file_type().unwrap(), "{path:?}");
                assert_eq!(metadata.ino(), entry.ino(), "{path:?}");
                if metadata.is_dir() {
                    waiting.push(path);
                } else {
                    let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
                    assert!(bytes.len() as u64 == metadata.len() || path.starts_with(self.path(".tiledbfs")));
                }
                count += 1;
                assert!(count < 50_000, "there is no end");
            }
        }
        count
    }

    /// The number of names that `find` prints; it must end.
    fn find(&self) -> usize {
        let mut command = Command::new("timeout");
        command.args(["20", "find"]).arg(self.mnt.path());
        let output = command.args(["-mindepth", "1", "-printf", "."]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout.len()
    }
}

/// Writes the files of a storage in memory to disk.
fn write(storage: &MemoryStorage, to: &Path) {
    for (path, bytes) in storage.files() {
        let path = to.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &**bytes).unwrap();
    }
}

fn empty_group(at: &Path) {
    fs::create_dir_all(at).unwrap();
    fs::write(at.join("__tiledb_group.tdb"), b"").unwrap();
}

fn group_of(at: &Path, members: &[Member]) {
    empty_group(at);
    fs::create_dir_all(at.join("__group")).unwrap();
    fs::write(
        at.join("__group/__1_1_00000000000000000000000000000000_2"),
        details(members),
    )
    .unwrap();
}

#[test]
fn attributes_of_any_name_through_a_mount() {
    let intact = tree(sample("weather"));
    let content = |name: &str| {
        let path = format!("{FRAGMENT}/columns/{name}/data.bin");
        intact.find(&path).unwrap().unwrap().read_all().unwrap()
    };
    let (mut one, mut other) = (vec![b'x'; 300], vec![b'x'; 300]);
    (one[299], other[299]) = (b'1', b'2');
    /// Two names, and their names in the mount.
    type Pair<'a> = (&'a [u8], &'a [u8], Option<[&'a str; 2]>);
    let pairs: [Pair; 9] = [
        (b"..", b".", Some(["%2E.", "%2E"])),
        (b"a/b", b"a%2Fb", Some(["a%2Fb", "a%252Fb"])),
        (b"", b"__attr", None),
        (b"\xff\xfe", b"%FF%FE", Some(["%FF%FE", "%25FF%25FE"])),
        (b"x", b"X", Some(["x", "X"])),
        (
            b"nul\0here",
            b"line\nfeed\x1b[31m\x07\t",
            Some(["nul%00here", "line\nfeed\x1b[31m\x07\t"]),
        ),
        (&one, &other, None),
        (&[0xFF; 300], &[0xFE; 300], None),
        (
            "\u{202e}\u{e9}".as_bytes(),
            "\u{202e}e\u{301}".as_bytes(),
            Some(["\u{202e}\u{e9}", "\u{202e}e\u{301}"]),
        ),
    ];
    for (first, second, shown) in pairs {
        let storage = renamed(&[("temperature", first), ("measured", second)]);
        let place = Place::new(false, |source| write(&storage, source));
        let columns = place.names(&format!("{FRAGMENT}/columns"));
        assert_eq!(columns.len(), 6, "{columns:?}");
        assert_eq!(columns.iter().collect::<HashSet<_>>().len(), 6);
        assert!(columns.iter().all(|name| name.len() <= 255));
        // In the order of the schema.
        assert!(
            shown.is_none_or(|shown| columns[0] == shown[0] && columns[3] == shown[1]),
            "{columns:?}"
        );
        for (index, old) in [(0, "temperature"), (3, "measured")] {
            let path = place.path(&format!("{FRAGMENT}/columns/{}/data.bin", columns[index]));
            assert!(fs::read(path).unwrap() == content(old), "{columns:?}");
        }
        place.look();
    }
}

#[test]
fn members_of_any_name_through_a_mount() {
    let long = [b'm'; 300];
    let place = Place::new(false, |source| {
        for name in ["a", "b", "a%20b", "sub/c"] {
            write(&sample("weather"), &source.join(name));
        }
        let absolute = |name: &str| format!("{}/{name}", source.to_str().unwrap()).into_bytes();
        let uri = |name: &str| [b"file://", &absolute(name)[..]].concat();
        let (path_of_a, uri_of_b, uri_of_encoded) = (absolute("a"), uri("b"), uri("a%20b"));
        let (above, itself) = (uri("../../etc"), uri(""));
        group_of(
            source,
            &[
                (2, true, b"a", Some(b"twice")),
                // Members are identified by their names: the later one counts.
                (2, true, b"b", Some(b"twice")),
                (2, true, b"a", Some(b"group.json")),
                (2, true, b"b", Some(b"metadata.json")),
                (2, true, b"a", Some(b".tiledbfs")),
                (2, true, b"a", Some(b"..")),
                (2, true, b"a", Some(b".")),
                (2, true, b"a", Some(b"x/y")),
                (2, true, b"a", Some(b"new\nline")),
                (2, true, b"a", Some(b"nul\0")),
                (2, true, b"a", Some(b"\xff")),
                (2, true, b"a", Some(&long)),
                (2, true, b"a", Some(b"")),
                (2, true, b"./sub/../sub//c/", None),
                (2, false, &path_of_a, Some(b"absolute")),
                (2, false, &uri_of_b, Some(b"uri")),
                (2, false, &uri_of_encoded, Some(b"escapes are none")),
                // None of these is shown: they are elsewhere, or nowhere.
                (2, false, b"file:///etc", Some(b"etc")),
                (2, false, b"file://localhost/etc", Some(b"host")),
                (2, false, b"file:///%65tc", Some(b"escaped")),
                (2, false, &above, Some(b"above")),
                (2, true, b"../..", Some(b"up")),
                (2, true, b"..", Some(b"parent")),
                (2, true, b"a\0b", Some(b"nul in the URI")),
                (2, true, b"a/../../../../../../../etc", Some(b"far up")),
                (2, false, b"s3://bucket/x", Some(b"remote")),
                (2, true, b"", Some(b"no uri")),
                (2, true, b".", Some(b"itself")),
                (2, false, &itself, Some(b"itself too")),
                (2, true, b"missing", Some(b"missing")),
            ],
        );
    });
    let names = place.names("");
    assert_eq!(
        names[..3],
        [".tiledbfs", "group.json", "metadata.json"],
        "{names:?}"
    );
    let shown = |name: &str| assert!(names.contains(&name.to_owned()), "{name} is not in {names:?}");
    for name in [
        "twice",
        "%2Etiledbfs",
        "%2E.",
        "%2E",
        "x%2Fy",
        "new\nline",
        "nul%00",
        "%FF",
        "a",
        "c",
    ] {
        shown(name);
    }
    for name in ["absolute", "uri", "escapes are none"] {
        shown(name);
    }
    for start in ["group.json~", "metadata.json~", "mmm"] {
        assert_eq!(
            names.iter().filter(|name| name.starts_with(start)).count(),
            1,
            "{start}: {names:?}"
        );
    }
    // Nothing else is shown.
    assert_eq!(names.len(), 3 + 16, "{names:?}");
    place.look();
    assert_eq!(place.find(), place.look());
}

#[test]
fn links_through_a_mount() {
    let fill = |source: &Path| {
        let outside = source.parent().unwrap().join("out");
        empty_group(&outside.join("g"));
        empty_group(&source.join("real/g"));
        symlink(&outside, source.join("out")).unwrap();
        symlink("../out", source.join("out-relative")).unwrap();
        symlink("real", source.join("inside")).unwrap();
        symlink(".", source.join("self")).unwrap();
        symlink("..", source.join("real/up")).unwrap();
        symlink("one", source.join("two")).unwrap();
        symlink("two", source.join("one")).unwrap();
        symlink("nowhere", source.join("dangling")).unwrap();
        symlink("/etc/passwd", source.join("file")).unwrap();
        // From outside back in.
        symlink(source, outside.join("back")).unwrap();
        symlink("in", outside.parent().unwrap().join("alias")).unwrap();
        symlink("../alias/real", source.join("around")).unwrap();
    };
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let place = Place::new(false, fill);
    // A path that leaves the source and returns ends inside.
    assert_eq!(sorted(place.names("")), [".tiledbfs", "around", "inside", "real"]);
    for path in ["inside", "real", "around"] {
        assert_eq!(place.names(path), ["g"]);
    }
    for name in ["out", "out/g", "self", "one", "dangling", "file", "real/up"] {
        let error = fs::metadata(place.path(name)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{name}");
    }
    assert_eq!(place.find(), place.look());

    let place = Place::new(true, fill);
    assert_eq!(
        sorted(place.names("")),
        [".tiledbfs", "around", "inside", "out", "out-relative", "real"]
    );
    assert_eq!(place.names("out"), ["g"], "`back` leads to the root");
    assert_eq!(place.find(), place.look());
}

#[test]
fn ways_through_links_do_not_multiply_for_ever() {
    const FOLDERS: usize = 6;
    let place = Place::new(false, |source| {
        empty_group(&source.join("g"));
        for i in 0..FOLDERS {
            fs::create_dir(source.join(format!("d{i}"))).unwrap();
            for j in (0..FOLDERS).filter(|j| *j != i) {
                symlink(format!("../d{j}"), source.join(format!("d{i}/to{j}"))).unwrap();
            }
        }
    });
    let found = place.find();
    // Through at most three links; without that bound there would be 1956 paths.
    let ways = 6 + 6 * 5 + 6 * 5 * 4 + 6 * 5 * 4 * 3;
    assert_eq!(found, ways + 5 + 3, "with .tiledbfs and a group");
    assert_eq!(place.look(), found);
    // The same through groups from before members were registered, and through arrays that are links.
    let place = Place::new(false, |source| {
        for i in 0..FOLDERS {
            empty_group(&source.join(format!("g{i}")));
            for j in (0..FOLDERS).filter(|j| *j != i) {
                symlink(format!("../g{j}"), source.join(format!("g{i}/to{j}"))).unwrap();
            }
        }
    });
    assert_eq!(place.look(), ways * 3 + 5, "each with two documents");
}

#[test]
fn groups_within_themselves_through_a_mount() {
    let place = Place::new(false, |source| {
        group_of(source, &[(1, true, b"g", None), (1, true, b".", Some(b"self"))]);
        let top = source.to_str().unwrap().as_bytes().to_vec();
        group_of(
            &source.join("g"),
            &[(1, true, b"h", None), (1, false, &top, Some(b"top"))],
        );
        group_of(
            &source.join("g/h"),
            &[(1, true, b"..", Some(b"up")), (1, true, b"../../g", Some(b"g"))],
        );
        // Two groups that contain each other.
        group_of(&source.join("one"), &[(1, true, b"../two", Some(b"other"))]);
        group_of(&source.join("two"), &[(1, true, b"../one", Some(b"other"))]);
    });
    let tops = place.names("");
    assert_eq!(tops[3..], ["g"], "{tops:?}");
    assert_eq!(place.find(), place.look());
    let place = Place::new(false, |source| {
        group_of(&source.join("one"), &[(1, true, b"two", Some(b"b"))]);
        let one = source.join("one").to_str().unwrap().as_bytes().to_vec();
        group_of(&source.join("one/two"), &[(1, false, &one, Some(b"a"))]);
        let two = source.join("one/two").to_str().unwrap().as_bytes().to_vec();
        group_of(&source.join("three"), &[(1, false, &two, Some(b"t"))]);
    });
    assert_eq!(place.names("one")[2..], ["b"]);
    assert_eq!(place.names("one/b")[2..], [""; 0]);
    assert_eq!(place.names("three/t")[2..], ["a"], "not above there");
    assert_eq!(place.find(), place.look());
}
