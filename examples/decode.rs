//! Decodes a file of the tree on all cores and drops what comes out: the most that decoding allows, without
//! FUSE, for `scripts/bench.sh` to compare with.
//!
//! `decode SOURCE PATH THREADS` prints the bytes, the seconds on the clock and the seconds of the processor
//! that it took, as JSON.

use nix::sys::resource::{UsageWho, getrusage};
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tiledbfs::Output;
use tiledbfs::internals::tree::{Node, Tree, TreeOptions};

/// Bytes of a piece: one chunk, unless the array says otherwise.
const PIECE: u64 = 65_536;

fn processor_seconds() -> std::result::Result<f64, Box<dyn Error>> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = [usage.user_time(), usage.system_time()]
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6);
    Ok(seconds.iter().sum())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, path, threads] = arguments.as_slice() else {
        return Err("usage: decode SOURCE PATH THREADS".into());
    };
    let options = TreeOptions {
        // Nothing is read twice. What is dropped at once stays in the processor's own caches.
        cache_size: 1 << 20,
        keys: Vec::new(),
        follow_symlinks: false,
        ..TreeOptions::default()
    };
    let tree = Tree::open(Path::new(source), &options)?;
    let Some(Node::File(file)) = tree.root.find(path)? else {
        return Err(format!("{path}: no such file").into());
    };
    let open = file.open()?;
    let pieces = open.len().div_ceil(PIECE);
    let next = AtomicU64::new(0);
    let (clock, processor) = (Instant::now(), processor_seconds()?);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.parse::<usize>()?)
            .map(|_| {
                scope.spawn(|| {
                    let mut out = Output::new();
                    loop {
                        // From the end to the start, which is not sequential, so that nothing is decoded
                        // ahead.
                        let piece = next.fetch_add(1, Ordering::Relaxed);
                        let Some(left) = pieces.checked_sub(piece + 1) else {
                            return Ok(());
                        };
                        out.clear();
                        open.read(left * PIECE..(left + 1) * PIECE, &mut out)?;
                    }
                })
            })
            .collect();
        for worker in workers {
            worker
                .join()
                .map_err(|_| "a thread panicked")
                .and_then(|result: tiledbfs::Result<()>| result.map_err(|_| "a chunk cannot be decoded"))?;
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    println!(
        "{{\"bytes\": {}, \"wall\": {:.6}, \"cpu\": {:.6}}}",
        open.len(),
        clock.elapsed().as_secs_f64(),
        processor_seconds()? - processor
    );
    Ok(())
}
