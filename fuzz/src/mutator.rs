//! Mutations of a whole source that know its files: the bytes behind a generic tile, the numbers of a footer,
//! the headers of chunks.

use super::bare::{FRONT, bare_tile, whole_tile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The fuzzer's own mutation: of a buffer, the length of its content and the most that it may become; gives
/// the new length.
pub type Blind = fn(&mut [u8], usize, usize) -> usize;

/// Numbers that lengths and counts go wrong at.
const VALUES: [u64; 14] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 7,
    u64::MAX,
];

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

type Files = Vec<(PathBuf, Arc<[u8]>)>;

/// Mutates an input of the target `array` in place and gives its new length.
pub fn array(data: &mut [u8], size: usize, most: usize, seed: u32, blind: Blind) -> usize {
    let mut random = Random(u64::from(seed));
    let files: Files = super::unpack(&data[..size])
        .files()
        .map(|(path, bytes)| (path.to_path_buf(), bytes.clone()))
        .collect();
    if files.is_empty() || random.below(10) == 0 {
        return blind(data, size, most);
    }
    let mut files = files;
    for _ in 0..=random.below(3) {
        one(&mut files, &mut random, blind);
    }
    let packed = super::pack_files(files.iter().map(|(path, bytes)| (path.as_path(), &bytes[..])));
    if packed.is_empty() || packed.len() > most.min(data.len()) {
        return blind(data, size, most);
    }
    data[..packed.len()].copy_from_slice(&packed);
    packed.len()
}

fn one(files: &mut Files, random: &mut Random, blind: Blind) {
    let is_values = |path: &Path| {
        path.extension().is_some_and(|e| e == "tdb")
            && !path
                .file_name()
                .is_some_and(|n| n.as_encoded_bytes().starts_with(b"__"))
    };
    // More depends on metadata than on values, of which there are more.
    let values = random.below(3) == 0;
    let wanted: Vec<usize> = (0..files.len())
        .filter(|&i| is_values(&files[i].0) == values && !files[i].1.is_empty())
        .collect();
    let Some(&i) = wanted.get(random.below(wanted.len())) else {
        return;
    };
    let other = random.below(files.len());
    match random.below(40) {
        0 => {
            files.remove(i);
        }
        1 => files[i].1 = files[other].1.clone(),
        2 => {
            let copy = (files[other].0.clone(), files[i].1.clone());
            files.push(copy);
        }
        3 => {
            let name = grown(files[i].0.as_os_str().as_encoded_bytes(), 64, blind);
            files[i].0 = PathBuf::from(String::from_utf8_lossy(&name).into_owned());
        }
        4..12 => files[i].1 = number(&files[i].1, random).into(),
        12..16 => files[i].1 = grown(&files[i].1, 256, blind).into(),
        16..34 => {
            files[i].1 = match whole_tile(&files[i].1) {
                Some((version, body)) => bare_tile(version, &grown(&body, 64, blind)).into(),
                None => inside(&files[i].1, random, blind).into(),
            }
        }
        _ => files[i].1 = inside(&files[i].1, random, blind).into(),
    }
}

/// The bytes after a mutation that may add up to `more`.
fn grown(bytes: &[u8], more: usize, blind: Blind) -> Vec<u8> {
    let mut buffer = bytes.to_vec();
    buffer.resize(bytes.len() + more, 0);
    let length = buffer.len();
    let new = blind(&mut buffer, bytes.len(), length);
    buffer.truncate(new);
    buffer
}

/// The bytes after a mutation of some in the middle that moves no others.
fn inside(bytes: &[u8], random: &mut Random, blind: Blind) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let length = [4, 8, 16, 64, 512][random.below(5)].min(bytes.len());
    let start = place(bytes, random).min(bytes.len() - length);
    let mut window = out[start..start + length].to_vec();
    let new = blind(&mut window, length, length);
    out[start..start + new].copy_from_slice(&window[..new]);
    out
}

/// The bytes with one number changed.
fn number(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let width = [1, 2, 4, 8][random.below(4)].min(bytes.len());
    let at = place(bytes, random).min(bytes.len() - width);
    let mut word = [0; 8];
    word[..width].copy_from_slice(&bytes[at..at + width]);
    let old = u64::from_le_bytes(word);
    let new = match random.below(5) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => old.wrapping_mul(2),
        _ => VALUES[random.below(VALUES.len())],
    };
    out[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
    out
}

/// Where in a file: in the footer, at the front, in the body of a bare tile, or anywhere.
fn place(bytes: &[u8], random: &mut Random) -> usize {
    match random.below(4) {
        0 => bytes.len() - 1 - random.below(bytes.len().min(600)),
        1 => random.below(bytes.len().min(FRONT + 64)),
        2 => {
            // Bodies and headers of tiles that follow each other.
            let mut starts = vec![0];
            let mut at = 0;
            while let Some(stored) = bytes.get(at + 4..).and_then(|rest| rest.first_chunk::<8>()) {
                let Ok(stored) = usize::try_from(u64::from_le_bytes(*stored)) else {
                    break;
                };
                at = at.saturating_add(42).saturating_add(stored);
                if at >= bytes.len() || starts.len() > 500 {
                    break;
                }
                starts.push(at);
            }
            let start = starts[random.below(starts.len())] + [0, FRONT, FRONT][random.below(3)];
            start + random.below(64)
        }
        _ => random.below(bytes.len()),
    }
}
