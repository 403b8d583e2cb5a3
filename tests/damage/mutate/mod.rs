//! Damages arrays, always in the same way for a seed.
#![allow(dead_code)]

pub mod checking;
pub mod places;

pub use crate::common::Random;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiledbfs::internals::storage::MemoryStorage;

/// Files of a source that are not empty, by path.
pub type Files = Vec<(PathBuf, Arc<[u8]>)>;

/// A change of one file.
#[derive(Debug, Clone)]
pub struct Mutation {
    /// The file, relative to the source.
    pub file: PathBuf,
    /// The bytes after the change; None if the file is missing.
    pub bytes: Option<Vec<u8>>,
    /// The other file of an exchange, and its new bytes.
    pub other: Option<(PathBuf, Vec<u8>)>,
    /// The first byte that differs.
    pub offset: usize,
    /// A description.
    pub what: String,
    /// The kind of change: for one within the original length, one bit or a few bytes.
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    BitFlip,
    Truncate,
    Count,
    Swap,
    Missing,
    Append,
}

/// All files that have bytes, or whose existence means something.
pub fn files(storage: &MemoryStorage) -> Files {
    storage
        .files()
        .map(|(path, bytes)| (path, bytes.clone()))
        .collect()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.first_chunk::<8>().copied()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u32::from_le_bytes(
        bytes.get(at..)?.first_chunk::<4>().copied()?,
    )))
}

/// Offsets at which a structure begins or ends, as far as the bytes alone tell: fields of generic tiles and
/// footers, chunks and their headers.
pub fn edges(path: &Path, bytes: &[u8]) -> Vec<usize> {
    let mut edges = vec![0, 1, bytes.len().saturating_sub(1), bytes.len() / 2];
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let chunks = |start: usize, end: usize, edges: &mut Vec<usize>| {
        let Some(count) = u64_at(bytes, start) else {
            return start;
        };
        edges.extend([start, start + 8]);
        let mut at = start + 8;
        for _ in 0..count.min(1000) {
            let (Some(filtered), Some(metadata)) = (u32_at(bytes, at + 4), u32_at(bytes, at + 8)) else {
                break;
            };
            let next = at + 12 + metadata as usize + filtered as usize;
            if next > end {
                break;
            }
            edges.extend([at, at + 4, at + 8, at + 12, at + 12 + metadata as usize]);
            // The beginnings of compressors' metadata: counts and lengths of parts.
            edges.extend((0..metadata.min(24) as usize).step_by(4).map(|i| at + 12 + i));
            at = next;
        }
        edges.push(at);
        at
    };
    let data = name.ends_with(".tdb") && name != "__fragment_metadata.tdb" && name != "__array_schema.tdb";
    if data {
        let mut at = 0;
        while at + 8 <= bytes.len() && edges.len() < 4000 {
            let next = chunks(at, bytes.len(), &mut edges);
            if next <= at {
                break;
            }
            at = next;
        }
    } else {
        let mut at = 0;
        while at + 34 <= bytes.len() && edges.len() < 4000 {
            let (Some(stored), Some(pipeline)) = (u64_at(bytes, at + 4), u32_at(bytes, at + 30)) else {
                break;
            };
            let start = at as u64 + 34 + pipeline;
            let Some(end) = start.checked_add(stored).filter(|&end| end <= bytes.len() as u64) else {
                break;
            };
            edges.extend([0, 4, 12, 20, 21, 29, 30, 34, 38, 42].map(|i| at + i));
            chunks(start as usize, end as usize, &mut edges);
            at = end as usize;
        }
        // The footer follows the tiles: mostly numbers of eight bytes, at any alignment.
        edges.extend((at..bytes.len()).take(600));
    }
    edges.retain(|&edge| edge < bytes.len());
    edges.sort_unstable();
    edges.dedup();
    edges
}

const VALUES: [u64; 16] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0xffff,
    1 << 20,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 40,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 7,
    u64::MAX,
];

/// One random mutation of one of `files`; None if the random choice changes nothing.
pub fn mutate(files: &Files, random: &mut Random) -> Option<Mutation> {
    // Prefers metadata: it is smaller than data, but more depends on it.
    let candidates: Vec<&(PathBuf, Arc<[u8]>)> =
        files.iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
    let (path, bytes) = *random.pick(&candidates)?;
    let mutation = |kind, new: Option<Vec<u8>>, offset, what: String| {
        (new.as_deref() != Some(&bytes[..])).then(|| Mutation {
            file: path.clone(),
            bytes: new,
            other: None,
            offset,
            what,
            kind,
        })
    };
    match random.below(20) {
        0..=6 => {
            let at = random.below(bytes.len() as u64) as usize;
            let bit = random.below(8);
            let mut new = bytes.to_vec();
            new[at] ^= 1 << bit;
            mutation(
                Kind::BitFlip,
                Some(new),
                at,
                format!("bit {bit} of byte {at} flipped"),
            )
        }
        7..=10 => {
            let edge = *random.pick(&edges(path, bytes))?;
            mutation(
                Kind::Truncate,
                Some(bytes[..edge].to_vec()),
                edge,
                format!("cut at {edge}"),
            )
        }
        11..=15 => {
            let edges = edges(path, bytes);
            let at = *random.pick(&edges)?;
            let width = *random.pick(&[1usize, 2, 4, 4, 8, 8])?;
            let old = bytes.get(at..at + width)?;
            let mut number = [0; 8];
            number[..width].copy_from_slice(old);
            let old = u64::from_le_bytes(number);
            let value = match random.below(4) {
                0 => old.wrapping_neg(),
                1 => old.wrapping_add(1),
                2 => old.wrapping_sub(1),
                _ => *random.pick(&VALUES)?,
            };
            let mut new = bytes.to_vec();
            new[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            let what = format!("{width} bytes at {at} from {old} to {value}");
            mutation(Kind::Count, Some(new), at, what)
        }
        16..=17 => {
            let (other, content) = *random.pick(&candidates)?;
            let exchanged = random.below(2) == 0;
            let what = match exchanged {
                true => format!("exchanged with {}", other.display()),
                false => format!("with the bytes of {}", other.display()),
            };
            let mut swap = mutation(Kind::Swap, Some(content.to_vec()), 0, what)?;
            swap.other = exchanged.then(|| (other.clone(), bytes.to_vec()));
            Some(swap)
        }
        18 => {
            let mut new = bytes.to_vec();
            new.extend((0..random.below(20) + 1).map(|i| i as u8));
            let what = format!("{} bytes appended", new.len() - bytes.len());
            mutation(Kind::Append, Some(new), bytes.len(), what)
        }
        _ => {
            let (path, _) = random.pick(files)?;
            Some(Mutation {
                file: path.clone(),
                bytes: None,
                other: None,
                offset: 0,
                what: "missing".into(),
                kind: Kind::Missing,
            })
        }
    }
}

impl Mutation {
    /// The bytes of `file` after the mutation, None if it is missing; `intact` if it did not change.
    pub fn now<'a>(&'a self, file: &Path, intact: &'a [u8]) -> Option<&'a [u8]> {
        match &self.other {
            _ if self.file == file => self.bytes.as_deref(),
            Some((other, bytes)) if other == file => Some(bytes),
            _ => Some(intact),
        }
    }

    /// The files that changed.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let other = self.other.iter().map(|(file, _)| file.as_path());
        std::iter::once(self.file.as_path()).chain(other)
    }

    /// Applies it to a copy of the source.
    pub fn apply(&self, storage: &mut MemoryStorage) {
        if let Some((file, bytes)) = &self.other {
            storage.insert(file, bytes.clone());
        }
        match &self.bytes {
            Some(bytes) => storage.insert(&self.file, bytes.clone()),
            None => {
                storage.remove(&self.file);
            }
        }
    }
}
