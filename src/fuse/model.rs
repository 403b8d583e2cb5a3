//! Compares the file system with a model on random sequences of requests. No kernel takes part, so that the
//! test sees every inode number, lookup count and handle.

use super::filesystem::{FileSystem, Found, place_behind};
use super::handles::Handle;
use super::inodes::ROOT;
use crate::error::{Error, Result};
use crate::format::testing::Random;
use crate::layout::FileLayout;
use crate::runtime::hash;
use crate::runtime::requester::abandoned;
use crate::storage::Credentials;
use crate::tree::node::Entry;
use crate::tree::{Directory, File, Freshness, Listing, Node, NodeType, Stat, Tree};
use fuser::{Errno, FileHandle as FuseHandle, FileType, FopenFlags, INodeNo, OpenFlags};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The content by path: bytes of a file, None for a directory. Directories have names that begin with `d`.
#[derive(Default)]
struct World(Mutex<BTreeMap<String, Option<Arc<Vec<u8>>>>>);

fn join(parent: &str, name: &str) -> String {
    match parent {
        "" => name.to_owned(),
        _ => format!("{parent}/{name}"),
    }
}

impl World {
    fn get(&self, path: &str) -> Option<Option<Arc<Vec<u8>>>> {
        match path {
            "" => Some(None),
            _ => self.0.lock().unwrap().get(path).cloned(),
        }
    }

    fn names(&self, path: &str) -> Vec<String> {
        let all = self.0.lock().unwrap();
        let child = |p: &String| match p.rsplit_once('/') {
            Some((parent, name)) => (parent == path).then(|| name.to_owned()),
            None => path.is_empty().then(|| p.clone()),
        };
        all.keys().filter_map(child).collect()
    }

    fn remove(&self, path: &str) {
        let below = format!("{path}/");
        let mut all = self.0.lock().unwrap();
        all.retain(|p, _| p != path && !p.starts_with(&below));
    }
}

/// The bytes of a file, None for a directory.
type Content = Option<Arc<Vec<u8>>>;

/// A path in the world.
struct WorldPath(Arc<World>, String);

impl WorldPath {
    fn node(world: &Arc<World>, path: &str, kind: NodeType) -> Node {
        let place = Arc::new(WorldPath(world.clone(), path.to_owned()));
        match kind {
            NodeType::Directory => Node::Directory(place),
            _ => Node::File(place),
        }
    }

    fn bytes(&self) -> Result<Arc<Vec<u8>>> {
        self.0
            .get(&self.1)
            .flatten()
            .ok_or_else(|| Error::not_found("gone").in_file("world"))
    }
}

fn kind(name: &str) -> NodeType {
    match name.starts_with('d') {
        true => NodeType::Directory,
        false => NodeType::File,
    }
}

impl Directory for WorldPath {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let name = name.to_str().unwrap();
        let path = join(&self.1, name);
        Ok(self
            .0
            .get(&path)
            .map(|_| WorldPath::node(&self.0, &path, kind(name))))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        if self.0.get(&self.1).is_none() {
            return Err(Error::not_found("gone"));
        }
        let names = self.0.names(&self.1).into_iter();
        let entries: Vec<Entry> = names.map(|name| (name.clone().into(), kind(&name))).collect();
        Ok(Arc::new(entries))
    }

    fn mtime(&self) -> u64 {
        1
    }

    fn freshness(&self) -> Freshness {
        Freshness::Listing
    }
}

impl File for WorldPath {
    fn stat(&self) -> Result<Stat> {
        let bytes = self.bytes()?;
        Ok(Stat {
            len: bytes.len() as u64,
            version: hash(&bytes),
        })
    }

    fn mtime(&self) -> u64 {
        1
    }

    fn freshness(&self) -> Freshness {
        Freshness::Listing
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        let bytes = self.bytes()?;
        Ok(Arc::new(FileLayout::new(hash(&bytes), vec![Box::new(bytes)])?))
    }
}

/// An open directory: its path, and its entries with `.` and `..` as of the last read from the start.
type OpenDirectory = (String, Option<Vec<String>>);

/// A model of the kernel.
struct Kernel {
    world: Arc<World>,
    filesystem: FileSystem,
    random: Random,
    /// Path, lookup count, and content at the lookup, of each inode that the kernel knows.
    known: BTreeMap<u64, (String, u64, Content)>,
    /// Every inode number ever returned, with its path.
    given: HashMap<u64, String>,
    /// The content that each file handle, a number and a generation, stands for.
    handles: HashMap<(u64, u64), Content>,
    /// The last number of each path.
    newest: HashMap<String, u64>,
    files: BTreeMap<u64, (String, Arc<Vec<u8>>)>,
    directories: BTreeMap<u64, OpenDirectory>,
    /// How often each kind of reply was seen, to check that all were.
    counts: BTreeMap<&'static str, u64>,
}

impl Kernel {
    fn new(seed: u64, most_held: usize) -> Kernel {
        let world = Arc::new(World::default());
        let tree = Tree::of_nodes(WorldPath::node(&world, "", NodeType::Directory));
        let mut filesystem = FileSystem::new(tree);
        Arc::get_mut(&mut filesystem.inodes).unwrap().most_held = most_held;
        Kernel {
            world,
            filesystem,
            random: Random(seed),
            known: BTreeMap::from([(ROOT, (String::new(), 1, None))]),
            given: HashMap::from([(ROOT, String::new())]),
            handles: HashMap::new(),
            newest: HashMap::new(),
            files: BTreeMap::new(),
            directories: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn any(&mut self) -> (u64, String) {
        let at = self.random.index(self.known.len());
        let (number, (path, ..)) = self.known.iter().nth(at).unwrap();
        (*number, path.clone())
    }

    fn name(&mut self) -> String {
        format!("{}{}", ["d", "f"][self.random.index(2)], self.random.index(4))
    }

    /// Creates, changes or removes a file or directory.
    fn change(&mut self) {
        let paths: Vec<String> = self.world.0.lock().unwrap().keys().cloned().collect();
        if paths.len() > 60 || self.random.index(4) == 0 && !paths.is_empty() {
            let path = &paths[self.random.index(paths.len())];
            self.world.remove(path);
            return;
        }
        let directories: Vec<&String> = paths.iter().filter(|p| self.world.get(p) == Some(None)).collect();
        let parent = match self.random.index(directories.len() + 1) {
            0 => "",
            i => directories[i - 1],
        };
        if parent.matches('/').count() > 4 {
            return;
        }
        let name = self.name();
        let path = join(parent, &name);
        let content = match kind(&name) {
            NodeType::Directory if self.world.get(&path).is_some() => return,
            NodeType::Directory => None,
            _ => Some(Arc::new(vec![
                self.random.index(256) as u8;
                self.random.index(20_000)
            ])),
        };
        self.world.0.lock().unwrap().insert(path, content);
    }

    fn check_number(&mut self, number: u64, path: &str, content: &Content) {
        let first = self.given.entry(number).or_insert_with(|| path.to_owned());
        assert_eq!(first, path, "number {number} was given to both");
        assert!(number > 0);
        for (other, (known, _, bytes)) in &self.known {
            let same = known == path && bytes == content;
            assert_eq!(same, *other == number, "{known} is {other}, {path} {number}");
        }
    }

    fn check_attributes(&self, attributes: &fuser::FileAttr, path: &str, content: &Content) {
        let (wanted, size) = match content {
            Some(bytes) => (FileType::RegularFile, bytes.len() as u64),
            None => (FileType::Directory, 0),
        };
        assert_eq!((attributes.kind, attributes.size), (wanted, size), "{path}");
    }

    fn lookup(&mut self) {
        let (parent, path) = self.any();
        let name = self.name();
        let child = join(&path, &name);
        let answer = self
            .filesystem
            .do_lookup(&Credentials::default(), INodeNo(parent), OsStr::new(&name));
        match (answer, self.world.get(&child)) {
            (
                Ok(Found::Entry {
                    attributes,
                    generation,
                    ..
                }),
                Some(content),
            ) => {
                let number = attributes.ino.0;
                self.check_number(number, &child, &content);
                let handle = self.handles.entry((number, generation.0));
                let first = handle.or_insert_with(|| content.clone());
                assert!(*first == content, "{child}: a file handle of another state");
                self.check_attributes(&attributes, &child, &content);
                self.newest.insert(child.clone(), number);
                self.known.entry(number).or_insert((child, 0, content)).1 += 1;
                self.count("found");
            }
            (Ok(Found::Absent { .. }), None) => self.count("absent"),
            (Err(Errno::ENOTDIR), _) if kind(last(&path)) == NodeType::File && parent != ROOT => {
                self.count("not a directory");
            }
            (Err(Errno::ESTALE), _) if self.world.get(&path).is_none() => {
                self.count("lookup in what is gone")
            }
            (Ok(_), there) => panic!("{child}: {there:?}"),
            (Err(errno), there) => panic!("{child}: {errno:?}, {there:?}"),
        }
    }

    fn getattr(&mut self) {
        let (number, path) = self.any();
        let content = self.known[&number].2.clone();
        match self.filesystem.do_getattr(INodeNo(number), None) {
            Ok((_, attributes)) => {
                assert_eq!(attributes.ino.0, number);
                // An inode keeps its attributes even if its file is gone, because it may be open.
                self.check_attributes(&attributes, &path, &content);
                self.count("attributes");
            }
            Err(errno) => {
                assert_eq!(errno.code(), libc::ESTALE, "{path}");
                assert!(
                    content.is_none() && self.world.get(&path).is_none(),
                    "{path} is there"
                );
                self.count("attributes of what is gone");
            }
        }
    }

    fn open(&mut self) {
        let (number, path) = self.any();
        let known = self.known[&number].2.clone();
        let flags = OpenFlags(libc::O_RDONLY);
        match (
            self.filesystem
                .do_open(&Credentials::default(), INodeNo(number), flags),
            self.world.get(&path),
        ) {
            (Ok((handle, _)), Some(Some(bytes))) => {
                assert!(known == Some(bytes.clone()), "{path} has changed");
                assert!(self.files.insert(handle.0, (path, bytes)).is_none());
                self.count("open");
            }
            (Err(Errno::ESTALE), Some(bytes)) if bytes != known => self.count("open what has changed"),
            (Err(Errno::EISDIR), Some(None)) => self.count("a directory"),
            (Err(_), None) => self.count("open what is gone"),
            (Ok(_), _) => panic!("{path} is no file"),
            (Err(errno), there) => panic!("{path}: {errno:?}, {there:?}"),
        }
    }

    fn pick<T>(random: &mut Random, from: &BTreeMap<u64, T>) -> Option<u64> {
        let count = from.len();
        (count > 0).then(|| *from.keys().nth(random.index(count)).unwrap())
    }

    fn read(&mut self) {
        let Some(number) = Self::pick(&mut self.random, &self.files) else {
            return;
        };
        let (path, bytes) = &self.files[&number];
        let (offset, size) = (self.random.index(21_000), self.random.index(9000));
        let handle = self.filesystem.handle(FuseHandle(number)).ok().unwrap();
        let Handle::File(handle) = &*handle else {
            panic!("{path} is not open as a file");
        };
        let mut piece = crate::bytes::Output::new();
        self.filesystem
            .do_read(handle, offset as u64, size as u32, &mut piece)
            .ok()
            .unwrap();
        let end = (offset + size).min(bytes.len());
        assert!(
            *piece == bytes[offset.min(end)..end],
            "{path}: {size} bytes at {offset}"
        );
        self.count("read");
    }

    fn release(&mut self) {
        if let Some(number) = Self::pick(&mut self.random, &self.files) {
            self.files.remove(&number);
            assert!(self.filesystem.handles.remove(number).is_some());
            assert!(self.filesystem.handle(FuseHandle(number)).is_err());
        }
    }

    fn opendir(&mut self) {
        let (number, path) = self.any();
        match self.filesystem.do_opendir(
            &Credentials::default(),
            INodeNo(number),
            OpenFlags(libc::O_RDONLY),
        ) {
            Ok((handle, _)) => {
                assert!(
                    number == ROOT || kind(last(&path)) == NodeType::Directory,
                    "{path}"
                );
                self.directories.insert(handle.0, (path, None));
            }
            Err(Errno::ENOTDIR) => assert_eq!(kind(last(&path)), NodeType::File, "{path}"),
            Err(errno) => {
                assert_eq!(errno.code(), libc::ESTALE, "{path}");
                assert!(self.world.get(&path).is_none(), "{path} is there");
            }
        }
    }

    /// Reads a few entries from a random offset, as after a seek.
    fn readdir(&mut self) {
        let Some(number) = Self::pick(&mut self.random, &self.directories) else {
            return;
        };
        let (path, snapshot) = self.directories[&number].clone();
        let most = snapshot.as_ref().map_or(1, |names| names.len() + 1);
        let (offset, room) = (self.random.index(most), 1 + self.random.index(5));
        let offset = if self.random.index(3) == 0 { 0 } else { offset };
        let place = match (offset.checked_sub(1), &snapshot) {
            (Some(before), Some(names)) => place_behind(before as u64, OsStr::new(&names[before])),
            _ => 0,
        };
        let mut seen = Vec::new();
        let answer = self
            .filesystem
            .do_readdir(FuseHandle(number), place, |inode, position, entry| {
                if seen.len() == room {
                    return true;
                }
                assert_eq!(position as usize, offset + seen.len());
                seen.push(match entry {
                    Some((name, kind_of)) => {
                        let name = name.to_str().unwrap().to_owned();
                        assert_eq!(kind_of, kind(&name));
                        let child = join(&path, &name);
                        let listed = self.filesystem.inodes.number_of(inode, OsStr::new(&name));
                        let newest = self.newest.get(&child);
                        assert!(
                            newest.is_none_or(|n| !self.known.contains_key(n) || *n == listed),
                            "{child} is listed as {listed}"
                        );
                        name
                    }
                    None => [".", ".."][position as usize].to_owned(),
                });
                false
            });
        if offset == 0 || snapshot.is_none() {
            match (answer, self.world.get(&path)) {
                (Ok(()), Some(_)) => {
                    let dots = [".".to_owned(), "..".to_owned()];
                    let names = [&dots[..], &self.world.names(&path)].concat();
                    self.directories.insert(number, (path.clone(), Some(names)));
                }
                (Err(_), None) => return self.count("read a directory that is gone"),
                (Ok(()), None) => panic!("{path} is listed but does not exist"),
                (Err(errno), Some(_)) => panic!("{path}: {errno:?}"),
            }
        }
        let (_, Some(names)) = &self.directories[&number] else {
            panic!("{path}: no snapshot");
        };
        let wanted: Vec<String> = names.iter().skip(offset).take(room).cloned().collect();
        assert_eq!(seen, wanted, "{path} from {offset}");
        self.count("entries");
    }

    fn releasedir(&mut self) {
        if let Some(number) = Self::pick(&mut self.random, &self.directories) {
            self.directories.remove(&number);
            assert!(self.filesystem.handles.remove(number).is_some());
        }
    }

    fn forget(&mut self) {
        let (number, path) = self.any();
        if number == ROOT {
            return;
        }
        let (_, count, _) = self.known.get_mut(&number).unwrap();
        let times = 1 + self.random.index(*count as usize) as u64;
        *count -= times;
        self.filesystem.inodes.forget(number, times);
        if *count == 0 {
            self.known.remove(&number);
            assert!(
                self.filesystem.do_getattr(INodeNo(number), None).is_err(),
                "{path}"
            );
            self.count("forgotten");
        } else {
            assert!(self.filesystem.inodes.get(number).is_some(), "{path}");
        }
    }

    fn step(&mut self) {
        match self.random.index(24) {
            0..3 => self.change(),
            3..9 => self.lookup(),
            9..11 => self.getattr(),
            11..13 => self.open(),
            13..15 => self.read(),
            15 => self.release(),
            16 => self.opendir(),
            17..20 => self.readdir(),
            20 => self.releasedir(),
            _ => self.forget(),
        }
        let stats = &self.filesystem.stats;
        assert_eq!(stats.inodes.get(), self.known.len() as u64);
        assert_eq!(
            stats.open_handles.get(),
            (self.files.len() + self.directories.len()) as u64
        );
    }

    /// Closes and forgets everything.
    fn end(&mut self) {
        while !self.files.is_empty() {
            self.release();
        }
        while !self.directories.is_empty() {
            self.releasedir();
        }
        while self.known.len() > 1 {
            self.forget();
        }
        assert_eq!(self.filesystem.stats.inodes.get(), 1);
        assert_eq!(self.filesystem.stats.open_handles.get(), 0);
        // Only the tree is left: nothing keeps nodes of forgotten inodes.
        assert!(Arc::strong_count(&self.world) <= 2, "nodes are left");
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[test]
fn the_file_system_agrees_with_the_model() {
    let (mut gone, mut changed) = (0, 0);
    for (seed, most_held) in (0..24).zip([1, 2, 6, 4096].into_iter().cycle()) {
        let mut kernel = Kernel::new(seed, most_held);
        for step in 0..4000 {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| kernel.step()));
            assert!(result.is_ok(), "seed {seed}, {most_held} nodes held, step {step}");
        }
        kernel.end();
        let answers = [
            "found",
            "absent",
            "not a directory",
            "attributes",
            "open",
            "read",
            "entries",
            "forgotten",
        ];
        for answer in answers {
            assert!(
                kernel.counts.get(answer) > Some(&20),
                "seed {seed}: {:?}",
                kernel.counts
            );
        }
        gone += kernel.counts.get("attributes of what is gone").unwrap_or(&0);
        changed += kernel.counts.get("open what has changed").unwrap_or(&0);
    }
    assert!(gone > 0, "all nodes were held");
    assert!(changed > 0, "nothing changed between lookup and open");
}

#[test]
fn open_files_keep_their_length_when_the_file_changes() {
    let kernel = Kernel::new(0, 4096);
    let write = |bytes: &[u8]| {
        let file = Some(Arc::new(bytes.to_vec()));
        kernel.world.0.lock().unwrap().insert("f".to_owned(), file);
    };
    let lookup = || match kernel
        .filesystem
        .do_lookup(&Credentials::default(), INodeNo(ROOT), OsStr::new("f"))
    {
        Ok(Found::Entry { attributes, .. }) => attributes,
        _ => panic!("a file is there"),
    };
    let open = |number| {
        kernel
            .filesystem
            .do_open(&Credentials::default(), number, OpenFlags(libc::O_RDONLY))
    };
    let size = |number| kernel.filesystem.do_getattr(number, None).unwrap().1.size;
    write(b"one");
    let first = lookup();
    let (_, flags) = open(first.ino).unwrap();
    assert!(flags.contains(FopenFlags::FOPEN_KEEP_CACHE));
    write(b"another");
    // Opening the old inode makes the kernel look the path up again.
    assert_eq!(open(first.ino).unwrap_err().code(), libc::ESTALE);
    let second = lookup();
    assert_ne!(first.ino, second.ino);
    open(second.ino).unwrap();
    assert_eq!((size(first.ino), size(second.ino)), (3, 7));
    kernel.world.remove("f");
    assert_eq!((size(first.ino), size(second.ino)), (3, 7));
    // Equal content is the same state.
    write(b"one");
    assert_eq!(lookup().ino, first.ino);
}

/// A directory of files whose lengths nobody waits for.
struct GivenUp;

impl Directory for GivenUp {
    fn lookup(&self, _: &OsStr) -> Result<Option<Node>> {
        Ok(Some(Node::File(Arc::new(GivenUp))))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        Ok(Arc::new(Vec::<Entry>::new()))
    }

    fn mtime(&self) -> u64 {
        1
    }
}

impl File for GivenUp {
    fn stat(&self) -> Result<Stat> {
        Err(abandoned())
    }

    fn mtime(&self) -> u64 {
        1
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        Err(abandoned())
    }
}

#[test]
fn a_file_is_not_empty_because_a_lookup_is_interrupted() {
    let filesystem = FileSystem::new(Tree::of_nodes(Node::Directory(Arc::new(GivenUp))));
    let found = filesystem.do_lookup(&Credentials::default(), INodeNo(ROOT), OsStr::new("f"));
    assert_eq!(found.err().map(|errno| errno.code()), Some(libc::EINTR));
}

/// A directory of a file whose state is this number, and its bytes too.
struct Replaced(Arc<AtomicU64>);

impl Directory for Replaced {
    fn lookup(&self, _: &OsStr) -> Result<Option<Node>> {
        Ok(Some(Node::File(Arc::new(Replaced(self.0.clone())))))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        Ok(Arc::new(Vec::<Entry>::new()))
    }

    fn mtime(&self) -> u64 {
        1
    }
}

impl File for Replaced {
    fn stat(&self) -> Result<Stat> {
        Ok(Stat { len: 8, version: 0 })
    }

    fn mtime(&self) -> u64 {
        1
    }

    fn freshness(&self) -> Freshness {
        Freshness::Immutable
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        let state = self.0.load(Ordering::Relaxed);
        let bytes = state.to_le_bytes().to_vec();
        Ok(Arc::new(FileLayout::new(state, vec![Box::new(bytes)])?))
    }
}

/// Between the reply to an open and what the kernel does by it, others may open the file.
#[test]
fn pages_are_kept_once_those_of_another_state_are_known_to_be_dropped() {
    let state: Arc<AtomicU64> = Arc::default();
    let filesystem = FileSystem::new(Tree::of_nodes(Node::Directory(Arc::new(Replaced(state.clone())))));
    let user = Credentials::default();
    let Ok(Found::Entry { attributes, .. }) = filesystem.do_lookup(&user, INodeNo(ROOT), OsStr::new("f"))
    else {
        panic!("a file is there");
    };
    let open = || {
        let (handle, flags) = filesystem
            .do_open(&user, attributes.ino, OpenFlags(libc::O_RDONLY))
            .unwrap();
        (handle, flags.contains(FopenFlags::FOPEN_KEEP_CACHE))
    };
    let close = |handle: FuseHandle| drop(filesystem.handles.remove(handle.0));
    let read = |handle| match &*filesystem.handle(handle).ok().unwrap() {
        Handle::File(handle) => filesystem
            .do_read(handle, 0, 8, &mut crate::bytes::Output::new())
            .unwrap(),
        Handle::Directory(_) => panic!("a file is open"),
    };
    for in_use in [&read as &dyn Fn(FuseHandle), &close] {
        let (first, keeps) = open();
        read(first);
        close(first);
        assert!(keeps);
        state.fetch_add(1, Ordering::Relaxed);
        let [(one, keep_one), (other, keep_other)] = [open(), open()];
        assert_eq!([keep_one, keep_other], [false; 2]);
        in_use(one);
        let (last, keeps) = open();
        assert!(keeps);
        for handle in [one, other, last] {
            close(handle);
        }
    }
}
