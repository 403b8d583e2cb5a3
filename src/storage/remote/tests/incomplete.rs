//! Arrays whose commits are listed before their files.

use super::*;

const COLUMN: &str = "weather/data/columns/temperature/data.bin";

/// A store with the sample, without those files of its last fragment for which `without` is true; the paths
/// of these files; and the content of [`COLUMN`] with them.
fn incomplete(page: usize, without: impl Fn(&str) -> bool) -> (Arc<TestStore>, Vec<String>, Vec<u8>) {
    let store = TestStore::new(page);
    store.put_folder(&sample(), "p");
    let fragments = std::fs::read_dir(sample().join("weather/__fragments")).unwrap();
    let last = fragments.map(|entry| entry.unwrap().file_name()).max().unwrap();
    let last = last.into_string().unwrap();
    let mut files = vec![format!("weather/__commits/{last}.wrt")];
    for file in std::fs::read_dir(sample().join("weather/__fragments").join(&last)).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        files.push(format!("weather/__fragments/{last}/{name}"));
    }
    files.retain(|file| without(file));
    for file in &files {
        store.delete(&format!("p/{file}"));
    }
    let tree = Tree::open(&sample(), &TreeOptions::default()).unwrap();
    (store, files, read(&tree, COLUMN).unwrap())
}

/// The content of a file in `tree`.
fn read(tree: &Tree, path: &str) -> Result<Vec<u8>> {
    let Some(Node::File(file)) = tree.root.find(path)? else {
        panic!("{path} is no file");
    };
    let (open, mut out) = (file.open()?, crate::bytes::Output::new());
    open.read(0..open.len(), &mut out)?;
    Ok(out.into())
}

#[test]
fn a_commit_without_its_files_is_ignored_for_a_while() {
    let (store, files, wanted) = incomplete(1000, |file| !file.ends_with(".wrt"));
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    let tree = Tree::over(storage, &TreeOptions::default(), Arc::default()).unwrap();
    let before = read(&tree, COLUMN).unwrap();
    assert!(before != wanted);
    for file in &files {
        store.put(&format!("p/{file}"), &std::fs::read(sample().join(file)).unwrap());
    }
    // Seen soon, although listings are valid for a minute.
    let end = Instant::now() + Duration::from_secs(4);
    while read(&tree, COLUMN).unwrap() != wanted {
        assert!(Instant::now() < end, "the fragment is not seen");
        thread::sleep(Duration::from_millis(200));
    }
    // Later, missing files are an error.
    let engine = Arc::new(Engine::new(
        RemoteStorage::open(
            incomplete(1000, |file| !file.ends_with(".wrt")).0.store("p"),
            settings(),
        )
        .unwrap(),
        1 << 20,
        Vec::new(),
        Arc::default(),
    ));
    let snapshot = Array::new(engine, "weather".into()).snapshot(None).unwrap();
    let now = crate::calendar::now();
    assert!(snapshot.check_complete(now).is_ok());
    let error = snapshot.check_complete(now + 20_000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
}

#[test]
fn fragments_are_listed_again_if_files_are_missing() {
    let without =
        |file: &str| file.ends_with(".wrt") || file.ends_with("metadata.tdb") || file.ends_with("a1.tdb");
    let (store, files, wanted) = incomplete(12, without);
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    let tree = Tree::over(storage.clone(), &TreeOptions::default(), Arc::default()).unwrap();
    assert!(read(&tree, COLUMN).unwrap() != wanted);
    for file in &files {
        store.put(&format!("p/{file}"), &std::fs::read(sample().join(file)).unwrap());
    }
    // Only the commits are listed again.
    storage.forget(Path::new("weather/__commits"), Duration::ZERO);
    thread::sleep(Duration::from_millis(150));
    assert!(read(&tree, COLUMN).unwrap() == wanted);
}

/// The array `weather` in `store`.
fn weather(store: &Arc<TestStore>) -> Array {
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    let engine = Arc::new(Engine::new(storage, 1 << 20, Vec::new(), Arc::default()));
    Array::new(engine, "weather".into())
}

#[test]
fn what_a_consolidation_replaced_is_seen_until_its_result_is_listed() {
    let store = TestStore::new(1000);
    store.put_folder(&sample(), "p");
    let names = |array: &Array| -> Vec<String> {
        let snapshot = array.snapshot(None).unwrap();
        assert!(snapshot.check_complete(crate::calendar::now()).is_ok());
        snapshot.fragments().map(|entry| entry.name.clone()).collect()
    };
    let before = weather(&store);
    let inputs = names(&before);
    let pin = before.pin(&before.snapshot(None).unwrap()).unwrap();
    let result = "__1738627200000_1739491200000_00112233445566778899aabbccddeeff_22";
    let listed: String = inputs
        .iter()
        .map(|name| format!("__fragments/{name}\n"))
        .collect();
    store.put(&format!("p/weather/__commits/{result}.vac"), listed.as_bytes());
    store.put(&format!("p/weather/__commits/{result}.wrt"), b"");
    let late = weather(&store);
    assert_eq!(names(&late), inputs);
    assert_eq!(late.pin(&late.snapshot(None).unwrap()).unwrap(), pin);
    store.put_folder(
        &sample().join("weather/__fragments").join(&inputs[1]),
        &format!("p/weather/__fragments/{result}"),
    );
    let whole = weather(&store);
    assert_eq!(names(&whole), [result]);
    assert!(whole.pinned(pin).is_ok());
}

#[test]
fn a_state_that_nobody_would_find_again_has_no_pin() {
    let store = TestStore::new(1000);
    store.put_folder(&sample(), "p");
    for late in 1..=3 {
        let name = format!("__173949120000{late}_173949120000{late}_00112233445566778899aabbccddeeff_22");
        store.put(&format!("p/weather/__commits/{name}.wrt"), b"");
        let array = weather(&store);
        let snapshot = array.snapshot(None).unwrap();
        assert!(snapshot.check_complete(crate::calendar::now()).is_ok());
        assert_eq!(array.pin(&snapshot).is_ok(), late <= 2, "{late}");
    }
}

#[test]
fn an_array_that_is_vacuumed_while_it_is_listed_is_listed_once_more() {
    let store = TestStore::new(1000);
    store.put_folder(&sample(), "p");
    let array = weather(&store);
    let names: Vec<String> = array
        .snapshot(None)
        .unwrap()
        .fragments()
        .map(|entry| entry.name.clone())
        .collect();
    let vacuum = format!("p/weather/__commits/{}.vac", names[1]);
    store.put(&vacuum, format!("__fragments/{}\n", names[0]).as_bytes());
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    assert!(storage.list(Path::new("weather/__commits")).unwrap().len() > 2);
    let engine = Arc::new(Engine::new(storage, 1 << 20, Vec::new(), Arc::default()));
    store.delete(&vacuum);
    store.delete(&format!("p/weather/__commits/{}.wrt", names[0]));
    let snapshot = Array::new(engine, "weather".into()).snapshot(None).unwrap();
    let seen: Vec<&str> = snapshot.fragments().map(|entry| entry.name.as_str()).collect();
    assert_eq!(seen, [&names[1]]);
}

#[test]
fn a_schema_that_could_not_be_read_is_read_again() {
    let store = TestStore::new(1000);
    store.put_folder(&sample().join("weather"), "a");
    let storage = RemoteStorage::open(store.store("a"), settings()).unwrap();
    let engine = Arc::new(Engine::new(storage, 1 << 20, Vec::new(), Arc::default()));
    let array = Array::new(engine, PathBuf::new());
    *store.fault.lock().unwrap() = Some(Box::new(|_| {
        Some(object_store::Error::Generic {
            store: "S3",
            source: "503".into(),
        })
    }));
    let unread = array.snapshot(None).unwrap();
    *store.fault.lock().unwrap() = None;
    let read = array.snapshot(None).unwrap();
    assert!(!Arc::ptr_eq(&unread, &read), "a failure is cached");
    assert!(Arc::ptr_eq(&read, &array.snapshot(None).unwrap()));
}
