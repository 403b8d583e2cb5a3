//! A FUSE file system that serves a directory from memory through the settings of `tiledbfs mount`: the most
//! that the kernel's side allows, for `scripts/bench.sh` to compare with.
//!
//! `memory_fs SOURCE MOUNTPOINT [COPIES]` reads SOURCE whole, shows it, or COPIES directories with the same
//! content, prints `ready`, and ends when it is unmounted.

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;
use tiledbfs::internals::fuse::{FileSystem, MountOptions, mount};
use tiledbfs::internals::tree::{Freshness, Node, Tree, memory};

fn load(path: &Path) -> std::io::Result<Node> {
    if !path.is_dir() {
        return Ok(memory::file(0, fs::read(path)?));
    }
    let mut nodes = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        nodes.push((entry.file_name(), load(&entry.path())?));
    }
    nodes.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(memory::folder(0, Freshness::Immutable, nodes))
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
        root = memory::folder(
            0,
            Freshness::Immutable,
            names.map(|name| (name, root.clone())).collect(),
        );
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
