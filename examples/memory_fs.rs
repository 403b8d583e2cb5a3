//! A FUSE file system that serves a directory from memory through the settings of `tiledbfs mount`: the most
//! that the kernel's side allows, for `scripts/bench.sh` to compare with.
//!
//! `memory_fs SOURCE MOUNTPOINT [COPIES]` reads SOURCE whole, shows it, or COPIES directories with the same
//! content, prints `ready`, and ends when it is unmounted.

use std::collections::HashMap;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use tiledbfs::Result;
use tiledbfs::internals::fuse::{FileSystem, MountOptions, mount};
use tiledbfs::internals::layout::FileLayout;
use tiledbfs::internals::tree::{Directory, File, Freshness, Listing, Node, NodeType, Stat, Tree};

struct Folder {
    nodes: HashMap<OsString, Node>,
    names: Arc<Vec<(OsString, NodeType)>>,
}

impl Folder {
    fn node(nodes: Vec<(OsString, Node)>) -> Node {
        let names = nodes
            .iter()
            .map(|(name, node)| (name.clone(), node.node_type()))
            .collect();
        Node::Directory(Arc::new(Folder {
            names: Arc::new(names),
            nodes: nodes.into_iter().collect(),
        }))
    }
}

impl Directory for Folder {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        Ok(self.nodes.get(name).cloned())
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        Ok(self.names.clone())
    }

    fn mtime(&self) -> u64 {
        0
    }

    fn freshness(&self) -> Freshness {
        Freshness::Immutable
    }
}

#[derive(Clone)]
struct Bytes(Arc<Vec<u8>>);

impl File for Bytes {
    fn stat(&self) -> Result<Stat> {
        Ok(Stat {
            len: self.0.len() as u64,
            version: 0,
        })
    }

    fn mtime(&self) -> u64 {
        0
    }

    fn freshness(&self) -> Freshness {
        Freshness::Immutable
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        Ok(Arc::new(FileLayout::new(0, vec![Box::new(self.0.clone())])?))
    }
}

fn load(path: &Path) -> std::io::Result<Node> {
    if !path.is_dir() {
        return Ok(Node::File(Arc::new(Bytes(Arc::new(fs::read(path)?)))));
    }
    let mut nodes = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        nodes.push((entry.file_name(), load(&entry.path())?));
    }
    nodes.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Folder::node(nodes))
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (source, mountpoint, copies) = match arguments.as_slice() {
        [source, mountpoint] => (source, mountpoint, None),
        [source, mountpoint, copies] => (source, mountpoint, Some(copies.parse::<usize>()?)),
        _ => return Err("usage: memory_fs SOURCE MOUNTPOINT [COPIES]".into()),
    };
    let mut root = load(Path::new(source))?;
    if let Some(copies) = copies {
        let names = (0..copies).map(|i| OsString::from(format!("a{i:05}")));
        root = Folder::node(names.map(|name| (name, root.clone())).collect());
    }
    let tree = Tree::of_nodes(root);
    let mounted = mount(
        FileSystem::new(tree),
        Path::new(mountpoint),
        &MountOptions::default(),
    )?;
    println!("ready");
    std::io::stdout().flush()?;
    mounted.ended().wait()?;
    Ok(())
}
