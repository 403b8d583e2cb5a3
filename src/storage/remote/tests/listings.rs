//! Listings: which requests are made, when, and how they are split.

use super::*;
use crate::catalog::group::read_group;
use crate::catalog::source::{ObjectKind, classify};

#[test]
fn expired_listings_are_made_again_on_demand() {
    let store = TestStore::new(1000);
    store.put("p/a/x", b"1");
    let open = |refresh| {
        let settings = RemoteSettings {
            refresh: Some(refresh),
            ..settings()
        };
        RemoteStorage::open(store.store("p"), settings).unwrap()
    };
    let version = |storage: &dyn Storage| storage.metadata(Path::new("a")).unwrap().version;
    // Listings that outlast the test, and some that have expired when they are made.
    let minute = Duration::from_secs(60);
    let (lasting, expired) = (open(minute), open(Duration::ZERO));
    assert_eq!(lasting.lag(), Some(minute + Duration::from_secs(10)));
    let before = [&lasting, &expired].map(|storage| version(&**storage));
    store.put("p/a/y", b"2");
    store.asked();
    assert_eq!(names(&*lasting, "a"), ["x"]);
    assert_eq!((version(&*lasting), store.asked().len()), (before[0], 0));
    assert_eq!(names(&*expired, "a"), ["x", "y"]);
    assert_eq!(store.asked().len(), 1);
    assert!(version(&*expired) != before[1]);
    // A replaced object changes the version as well, for others when they forget what they know.
    lasting.forget(Path::new("a/x"), Duration::ZERO);
    let before = [&lasting, &expired].map(|storage| version(&**storage));
    store.put("p/a/x", b"3");
    assert!(version(&*expired) != before[1]);
    store.asked();
    assert_eq!((version(&*lasting), store.asked().len()), (before[0], 0));
    lasting.forget(Path::new("a/x"), Duration::ZERO);
    assert!(version(&*lasting) != before[0]);
    assert_eq!(store.asked().len(), 1);
}

#[test]
fn keys_that_are_not_paths_are_skipped() {
    for odd in ["p/./c", "p/a//b", "p/a/../z", "p/a/x\u{1}"] {
        for page in [1000, 3] {
            let store = TestStore::new(page);
            for name in ["a/x", "a/y", "b", "c/d/e", "c/d/f", "x", "y/z"] {
                store.put(&format!("p/{name}"), b"1");
            }
            *store.odd.lock().unwrap() = vec![odd.to_owned()];
            let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
            assert_eq!(names(&*storage, "a"), ["x", "y"], "{odd} {page}");
            assert_eq!(names(&*storage, "c/d"), ["e", "f"]);
            let top = names(&*storage, "");
            assert_eq!(top[..5], ["a", "b", "c", "x", "y"], "{odd} {page}");
        }
    }
}

#[test]
fn keys_that_begin_with_a_slash_are_no_paths() {
    let store = TestStore::new(1000);
    store.put("a/x", b"1");
    // So [`replies`] has them.
    *store.odd.lock().unwrap() = ["//a/x", "//a/y", "//b/z"].map(str::to_owned).to_vec();
    let storage = RemoteStorage::open(store.store(""), settings()).unwrap();
    assert_eq!(names(&*storage, ""), ["a"]);
    assert_eq!(names(&*storage, "a"), ["x"]);
    assert!(store.asked().len() < 10);
}

#[test]
fn many_keys_that_are_not_paths_are_skipped_at_once() {
    let store = TestStore::new(1000);
    for name in ["a/x", "b"] {
        store.put(&format!("p/{name}"), b"1");
    }
    let below = |part: &str| {
        (0..500)
            .map(move |number| format!("p/{part}/{number}"))
            .collect::<Vec<_>>()
    };
    *store.odd.lock().unwrap() = [below("a/"), below("a/y/../z"), below("c\u{1}")].concat();
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    store.asked();
    assert_eq!(names(&*storage, "a"), ["x"]);
    assert!(names(&*storage, "").starts_with(&["a", "b"].map(str::to_owned)));
    let asked = store.asked().len();
    assert!(asked <= 20, "{asked}");
}

#[test]
fn a_listing_may_take_longer_than_it_is_valid() {
    let store = TestStore::new(2);
    for name in ["a/b/1", "a/b/2", "a/b/3", "a/c"] {
        store.put(&format!("p/{name}"), b"1");
    }
    *store.latency.lock().unwrap() = Duration::from_millis(30);
    let settings = RemoteSettings {
        refresh: Some(Duration::from_millis(5)),
        ..settings()
    };
    let storage = RemoteStorage::open(store.store("p"), settings).unwrap();
    assert_eq!(names(&*storage, "a/b"), ["1", "2", "3"]);
    assert!(store.asked().len() < 20);
}

#[test]
fn a_first_listing_may_take_as_long_as_its_pages_come() {
    let store = TestStore::new(1);
    for name in 0..20 {
        store.put(&format!("p/{name:02}"), b"1");
    }
    *store.latency.lock().unwrap() = Duration::from_millis(100);
    let soon = || Store {
        open_until: Instant::now() + Duration::from_secs(1),
        ..store.store("p")
    };
    let storage = RemoteStorage::open(soon(), settings()).unwrap();
    assert_eq!(names(&*storage, "").len(), 20);
    *store.latency.lock().unwrap() = Duration::from_secs(2);
    let error = RemoteStorage::open(soon(), settings()).err().unwrap();
    assert!(error.to_string().contains("does not answer"), "{error}");
}

#[test]
fn concurrent_listings_of_a_prefix_share_one_request() {
    let store = TestStore::new(1000);
    store.put("p/a/x", b"1");
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    store.asked();
    storage.forget(Path::new(""), Duration::ZERO);
    *store.latency.lock().unwrap() = Duration::from_millis(200);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(names(&*storage, "a"), ["x"]));
        }
    });
    assert_eq!(store.asked(), [Request::List("p/".to_owned())]);
}

#[test]
fn a_listing_under_way_is_known_to_be_out_of_date() {
    let store = TestStore::new(1000);
    store.put("p/a/x", b"1");
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    storage.forget(Path::new(""), Duration::ZERO);
    store.asked();
    store.hold(true);
    thread::scope(|scope| {
        let listing = scope.spawn(|| names(&*storage, "a"));
        store.wait_for_request();
        storage.forget(Path::new("a/x"), Duration::ZERO);
        store.hold(false);
        assert_eq!(listing.join().unwrap(), ["x"]);
    });
    // It is good enough for who asked before it was begun, and for nobody else.
    assert_eq!(store.asked().len(), 1);
    assert_eq!(names(&*storage, "a"), ["x"]);
    assert_eq!(store.asked().len(), 1);
}

#[test]
fn expired_listings_are_used_while_the_store_is_slow() {
    let store = TestStore::new(1000);
    store.put("p/a/x", b"1");
    let settings = RemoteSettings {
        refresh: Some(Duration::from_millis(100)),
        ..settings()
    };
    let storage = RemoteStorage::open(store.store("p"), settings).unwrap();
    assert_eq!(names(&*storage, "a"), ["x"]);
    store.put("p/a/y", b"2");
    thread::sleep(Duration::from_millis(200));
    store.asked();
    store.hold(true);
    // An expired listing is used a little longer.
    for _ in 0..3 {
        assert_eq!(names(&*storage, "a"), ["x"]);
        let missing = storage.metadata(Path::new("a/y")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
    assert_eq!(store.asked().len(), 1);
    // A listing that is known to be wrong is not used, and callers may give up waiting.
    storage.forget(Path::new("a"), Duration::ZERO);
    let ended = ended();
    let error = crate::runtime::requester::on_behalf_of(ended, || storage.list(Path::new("a")).unwrap_err());
    assert_eq!(error.errno(), libc::EINTR);
    store.hold(false);
    assert_eq!(names(&*storage, "a"), ["x", "y"]);
    assert_eq!(store.asked().len(), 1, "it waited for an abandoned request");
}

#[test]
fn each_directory_may_be_listed_again_once_its_listing_is_a_second_old() {
    // Many keys per entry: the directories are listed apart.
    let store = TestStore::new(20);
    for key in ["a", "b"].map(|name| (0..30).map(move |number| format!("p/{name}/{number:02}"))) {
        key.for_each(|key| store.put(&key, b"1"));
    }
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    let engine = Engine::new(storage, 1 << 20, Vec::new(), Arc::default());
    let anew = || ["a", "b"].map(|name| engine.list_anew(Path::new(name)));
    let list = || ["a", "b"].map(|name| names(&*engine.storage, name).len());
    assert_eq!(list(), [30, 30]);
    // Of directories that were just listed, one a second.
    assert_eq!(anew(), [true, false]);
    list();
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(anew(), [true, true]);
    store.asked();
    list();
    assert_eq!(store.asked().len(), 4);
    assert_eq!(anew(), [false, false]);
}

#[test]
fn markers_of_empty_directories_are_nothing_in_place_of_these() {
    let store = TestStore::new(1000);
    for (key, bytes) in [
        ("__tiledb_group.tdb", b"".as_slice()),
        ("__group", b""),
        ("__meta", b""),
        ("other/__tiledb_group.tdb", b""),
        ("other/__group", b"x"),
    ] {
        store.put(&format!("p/{key}"), bytes);
    }
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    let engine = Arc::new(Engine::new(storage, 1 << 20, Vec::new(), Arc::default()));
    let kind = |path: &str| classify(&engine, Path::new(path)).map_err(|error| error.kind());
    assert_eq!(kind(""), Ok(ObjectKind::Group));
    assert_eq!(kind("other"), Err(ErrorKind::Missing));
    let (group, _) = read_group(&engine, Path::new("")).unwrap();
    assert!(group.members.is_empty());
}

#[test]
fn callers_may_give_up_waiting_for_an_array_listing() {
    let store = TestStore::new(1000);
    store.put_folder(&sample().join("weather"), "a");
    let storage = RemoteStorage::open(store.store("a"), settings()).unwrap();
    let engine = Arc::new(Engine::new(storage, 1 << 20, Vec::new(), Arc::default()));
    let array = Array::new(engine.clone(), PathBuf::new());
    array.listing().unwrap();
    engine.storage.forget(Path::new(""), Duration::ZERO);
    array.look_again();
    store.hold(true);
    store.asked();
    let ended = ended();
    thread::scope(|scope| {
        let first = scope.spawn(|| array.listing());
        store.wait_for_request();
        let error = crate::runtime::requester::on_behalf_of(ended, || array.listing().err().unwrap());
        assert_eq!(error.errno(), libc::EINTR);
        store.hold(false);
        first.join().unwrap().unwrap();
    });
    // Callers that share a failed listing do not wait for another one.
    engine.storage.forget(Path::new(""), Duration::ZERO);
    array.look_again();
    *store.fault.lock().unwrap() = Some(Box::new(|_| {
        Some(object_store::Error::Generic {
            store: "S3",
            source: "503".into(),
        })
    }));
    *store.latency.lock().unwrap() = Duration::from_millis(500);
    store.asked();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(array.listing().err().unwrap().errno(), libc::EIO));
        }
    });
    let asked = store.asked().len();
    assert!((1..8).contains(&asked), "{asked} requests");
}

#[test]
fn vacuum_files_are_read_many_at_once() {
    let store = TestStore::new(1000);
    store.put_folder(&sample().join("weather"), "a");
    for number in 1..41 {
        let name = format!("a/__commits/__1_{number}_{number:032x}_22.vac");
        store.put(
            &name,
            format!("a/__fragments/__1_1_{number:032x}_22\n").as_bytes(),
        );
    }
    let storage = RemoteStorage::open(store.store("a"), settings()).unwrap();
    let engine = Arc::new(Engine::new(storage, 1 << 20, Vec::new(), Arc::default()));
    *store.latency.lock().unwrap() = Duration::from_millis(50);
    store.asked();
    let listing = Array::new(engine, PathBuf::new()).listing().unwrap();
    assert_eq!(listing.vacuums.len(), 40);
    let (_, at_once) = *store.under_way.lock().unwrap();
    assert!(at_once >= 20, "{at_once} requests at once");
    assert_eq!(store.asked().len(), 40);
}

#[test]
fn details_of_a_group_are_read_many_at_once() {
    let store = TestStore::new(1000);
    store.put_folder(&sample(), "g");
    let details = std::fs::read_dir(sample().join("__group")).unwrap().next();
    let details = std::fs::read(details.unwrap().unwrap().path()).unwrap();
    for number in 1..41 {
        store.put(&format!("g/__group/__1_{number}_{number:032x}_2"), &details);
    }
    let storage = RemoteStorage::open(store.store("g"), settings()).unwrap();
    let engine = Arc::new(Engine::new(storage, 1 << 20, Vec::new(), Arc::default()));
    *store.latency.lock().unwrap() = Duration::from_millis(50);
    let (group, _) = read_group(&engine, Path::new("")).unwrap();
    assert_eq!(group.members.len(), 2);
    let (_, at_once) = *store.under_way.lock().unwrap();
    assert!(at_once >= 20, "{at_once} requests at once");
}

#[test]
fn large_prefixes_are_listed_by_directory() {
    let store = TestStore::new(20);
    for array in 0..3 {
        for fragment in 0..30 {
            store.put(&format!("p/a{array}/__fragments/f{fragment:02}/m"), b"m");
        }
        store.put(&format!("p/a{array}/__schema/s"), b"s");
        store.put(&format!("p/a{array}/wide/w/deep"), b"d");
        for file in 0..30 {
            store.put(&format!("p/a{array}/wide/x/{file:02}"), b"w");
        }
    }
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    let asked = || store.asked().len();
    // A page that ends in the first array, and the entries.
    assert_eq!(names(&*storage, ""), ["a0", "a1", "a2"]);
    assert_eq!(asked(), 2);
    assert_eq!(names(&*storage, "a1"), ["__fragments", "__schema", "wide"]);
    assert_eq!(asked(), 2);
    // Few keys per entry: flat, with all lengths.
    assert_eq!(names(&*storage, "a1/__fragments").len(), 30);
    assert_eq!(asked(), 2);
    assert_eq!(
        storage.metadata(Path::new("a1/__fragments/f07/m")).unwrap().len,
        1
    );
    assert_eq!(asked(), 0);
    assert_eq!(names(&*storage, "a1/__schema"), ["s"]);
    assert_eq!(asked(), 1);
    // Many keys per entry: only the entries. The first page contains one of them completely.
    assert_eq!(names(&*storage, "a1/wide"), ["w", "x"]);
    assert_eq!(names(&*storage, "a1/wide/w"), ["deep"]);
    assert_eq!(asked(), 2);
    assert_eq!(names(&*storage, "a1/wide/x").len(), 30);
    assert_eq!(asked(), 2);
    let missing = storage.metadata(Path::new("a1/none/x")).unwrap_err();
    assert_eq!((missing.kind(), asked()), (ErrorKind::NotFound, 0));
}

#[test]
fn stores_may_list_in_another_order() {
    // By names before directories; and even numbers first, so that the first page alone is in byte order.
    let by_name = |key: &str| {
        let (directory, name) = key.rsplit_once('/').unwrap_or(("", key));
        format!("{name}/{directory}")
    };
    let by_digit = |key: &str| match key.ends_with(|last: char| "13579".contains(last)) {
        true => format!("x{key}"),
        false => key.to_owned(),
    };
    type Order = fn(&str) -> String;
    for (order, ordered) in [(by_name as Order, true), (by_digit, false)] {
        // Many keys for each name: listed by directory. One for each: listed flat.
        let store = TestStore::new(20);
        *store.order.lock().unwrap() = order;
        let numbers: Vec<String> = (0..30).map(|number| format!("{number:02}")).collect();
        for number in &numbers {
            for directory in ["a", "b"] {
                store.put(&format!("p/{directory}/{number}"), b"1");
            }
        }
        let opened = Store {
            ordered,
            ..store.store("p")
        };
        let storage = RemoteStorage::open(opened, settings()).unwrap();
        assert_eq!(names(&*storage, ""), ["a", "b"]);
        for directory in ["a", "b"] {
            storage
                .will_list_named(Path::new(directory), &|| Ok(numbers.clone()))
                .unwrap();
            assert_eq!(names(&*storage, directory), numbers, "{directory}");
        }
    }
}

#[test]
fn expected_names_let_pages_be_listed_concurrently() {
    let all: Vec<String> = (0..100).map(|number| format!("f{number:02}")).collect();
    let some = |step: usize| all.iter().step_by(step).cloned().collect::<Vec<_>>();
    let mut more = all.clone();
    more.extend((0..40).map(|number| format!("f50{number:02}")));
    more.sort();
    for (expected, pages) in [
        (some(1), 10),
        (some(3), 12),
        (more, 15),
        (vec!["g".to_owned()], 10),
    ] {
        let store = TestStore::new(20);
        for name in &all {
            // One entry has another number of keys.
            let files = if name == "f33" {
                ["a", "b", "m"].as_slice()
            } else {
                ["a", "m"].as_slice()
            };
            for file in files {
                store.put(&format!("p/__fragments/{name}/{file}"), b"m");
            }
        }
        let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
        store.asked();
        let directory = Path::new("__fragments");
        storage
            .will_list_named(directory, &|| Ok(expected.clone()))
            .unwrap();
        *store.latency.lock().unwrap() = Duration::from_millis(100);
        assert_eq!(names(&*storage, "__fragments"), all);
        assert_eq!(names(&*storage, "__fragments/f33"), ["a", "b", "m"]);
        let asked = store.asked().len();
        assert!((10..=pages + 1).contains(&asked), "{asked} of {pages}");
        if expected.len() >= all.len() {
            let (_, at_once) = *store.under_way.lock().unwrap();
            assert!(at_once >= 4, "{at_once} requests at once");
        }
        storage
            .will_list_named(directory, &|| panic!("the directory is already listed"))
            .unwrap();
    }
}
