//! Chunks of text as Zarr's codec `vlen-utf8` stores them: the number of texts, then length and bytes of each
//! in C order; numbers are little-endian u32. The texts `CD4`, one that is empty, and padding up to a chunk
//! of three:
//!
//! ```text
//! 03 00 00 00                three texts
//! 03 00 00 00 43 44 34       3 bytes, "CD4"
//! 00 00 00 00                no bytes
//! 00 00 00 00                padding
//! ```
//!
//! The length of a chunk follows from those of its texts. A chunk is cut into blocks, each of which is made
//! when it is read. In HDF5 all texts of an array have the length of the longest, padded with NUL bytes.

use super::node::{Array, Content, Held, InOrder, Parts};
use crate::bytes::{Bytes, Keep, Output};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::export::csv::text::datetime;
use crate::format::datatype::{Datatype, Kind};
use crate::format::enumeration::Enumeration;
use crate::format::scalar::Scalar;
use crate::runtime::cache::{CacheKey, Entry};
use crate::runtime::{get_or_make, parallel};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Texts in order.
pub(super) trait Texts: Send + Sync {
    /// The columns that are read.
    fn hold(&self) -> Result<Held> {
        Ok(Held::new())
    }

    /// The bytes of some texts each. Reads no more than lengths need.
    fn lengths(&self, texts: Range<u64>) -> Result<Vec<u64>>;

    /// Calls `put` with the bytes of some texts, one after the other.
    fn read(&self, texts: Range<u64>, put: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}

/// About the bytes of a block.
const BLOCK: u64 = 128 << 10;

/// Texts whose lengths are read at once.
const MEASURED: u64 = 1 << 16;

/// Runs of texts that are measured at once, by several threads.
const RUNS_AT_ONCE: u64 = 16;

/// Texts as an array.
pub(super) struct TextChunks {
    pub(super) engine: Arc<Engine>,
    /// The array that has them, relative to the source.
    pub(super) path: String,
    /// Identifies the texts and their state in the cache.
    pub(super) object: u64,
    pub(super) texts: Arc<dyn Texts>,
}

impl Content for TextChunks {
    fn chunk(&self, array: &Array, numbers: &[u64]) -> Result<Parts> {
        // A scalar has no axis; other axes than the first are not divided.
        let (number, side, rows, row) = match array.shape.is_empty() {
            true => (0, 1, 0..1, 1),
            false => {
                let row = array.shape[1..].iter().product();
                (numbers[0], array.sides[0], array.rows(numbers[0]), row)
            }
        };
        let count =
            u32::try_from(side * row).map_err(|_| Error::limit("a chunk would have more than 2^32 texts"))?;
        let texts = rows.start * row..rows.end * row;
        let key = CacheKey::tile(self.engine.number(&("text blocks", self.object)), number);
        let blocks = || Blocks::measure(&*self.texts, texts.clone());
        let blocks = self.engine.cache.derive(key, 4096, Keep::Staying, blocks)?;
        let body = Body {
            engine: self.engine.clone(),
            object: self.engine.number(&("text", self.object, number)),
            texts: self.texts.clone(),
            blocks,
            held: OnceLock::new(),
        };
        let mut parts: Parts = vec![Box::new(count.to_le_bytes().to_vec()), Box::new(body)];
        if !array.shape.is_empty() {
            parts.push(array.padding(number, row));
        }
        Ok(parts)
    }

    fn in_order(&self, array: &Array) -> Result<InOrder> {
        let count = array.cells()?;
        let size = self.longest(count)?;
        let len = count.checked_mul(size);
        let padded = Padded {
            texts: self.texts.clone(),
            size,
            len: len.ok_or_else(|| Error::limit("texts would have 2^64 bytes or more"))?,
            held: OnceLock::new(),
        };
        Ok(InOrder {
            size,
            bytes: Box::new(padded),
        })
    }
}

impl TextChunks {
    /// The bytes of the longest of all `count` texts, at least 1. Reads their lengths, once for each state.
    fn longest(&self, count: u64) -> Result<u64> {
        let engine = &self.engine;
        let object = engine.number(&("longest text", self.object));
        let _waiting = engine.work.wait(object);
        let measure = || {
            let _held = self.texts.hold()?;
            let job = engine
                .work
                .start(object, self.path.clone(), "measuring text", count);
            let (mut longest, mut start) = (1, 0);
            while start < count {
                let some = start..count.min(start + RUNS_AT_ONCE * MEASURED);
                let runs = (some.end - start).div_ceil(MEASURED);
                let found = parallel::each(runs, |run| {
                    let first = start + run * MEASURED;
                    let lengths = self.texts.lengths(first..some.end.min(first + MEASURED))?;
                    Ok::<_, Error>(lengths.into_iter().max())
                })?;
                longest = found.into_iter().flatten().fold(longest, u64::max);
                job.advance(some.end - start)?;
                start = some.end;
            }
            Ok(vec![longest])
        };
        let found = engine
            .cache
            .derive(CacheKey::of(object), 8, Keep::Staying, measure)?;
        engine.cache.check_size(found[0])?;
        Ok(found[0])
    }
}

/// An error if a text is not UTF-8.
fn check(bytes: &[u8], text: u64) -> Result<()> {
    match std::str::from_utf8(bytes) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::corrupt(format!(
            "the text of row {text} is not UTF-8: {error}"
        ))),
    }
}

/// Texts of the same size, padded with NUL bytes.
struct Padded {
    texts: Arc<dyn Texts>,
    /// Bytes of a text with its padding.
    size: u64,
    /// Bytes of all.
    len: u64,
    held: OnceLock<Held>,
}

impl Bytes for Padded {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        get_or_make(&self.held, || self.texts.hold())?;
        let all = range.start / self.size..range.end.div_ceil(self.size);
        for start in all.clone().step_by(MEASURED as usize) {
            let mut text = start;
            let some = start..all.end.min(start + MEASURED);
            self.texts.read(some, &mut |bytes| {
                check(bytes, text)?;
                if bytes.len() as u64 > self.size {
                    return Err(Error::corrupt(format!(
                        "the text of row {text} has {} bytes, but the longest had {} when they were measured",
                        bytes.len(),
                        self.size
                    )));
                }
                let first = text * self.size;
                let start = (range.start.max(first) - first) as usize;
                let end = (range.end.min(first + self.size) - first) as usize;
                out.write(|out| {
                    let before = out.len();
                    out.extend_from_slice(&bytes[start.min(bytes.len())..end.min(bytes.len())]);
                    out.resize(before + end - start, 0);
                });
                text += 1;
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Where blocks of texts end.
struct Blocks {
    /// The first text.
    first: u64,
    /// The number behind the last text of each block, and the bytes up to there.
    ends: Vec<(u64, u64)>,
}

impl Entry for Blocks {
    fn memory(&self) -> u64 {
        self.ends.memory()
    }
}

impl Blocks {
    fn measure(texts: &dyn Texts, all: Range<u64>) -> Result<Blocks> {
        let _held = texts.hold()?;
        let (mut ends, mut before, mut sum) = (Vec::new(), 0u64, 0u64);
        let mut start = all.start;
        while start < all.end {
            let some = start..all.end.min(start + MEASURED);
            for (text, length) in some.clone().zip(texts.lengths(some.clone())?) {
                if u32::try_from(length).is_err() {
                    return Err(Error::limit(format!("a text of {length} bytes")));
                }
                let end = sum.checked_add(4 + length);
                sum = end.ok_or_else(|| Error::limit("a chunk would have 2^64 bytes or more"))?;
                if sum - before >= BLOCK {
                    ends.push((text + 1, sum));
                    before = sum;
                }
            }
            start = some.end;
        }
        if before < sum {
            ends.push((all.end, sum));
        }
        Ok(Blocks {
            first: all.start,
            ends,
        })
    }
}

/// The texts of a chunk without its head and padding.
struct Body {
    engine: Arc<Engine>,
    object: u64,
    texts: Arc<dyn Texts>,
    blocks: Arc<Blocks>,
    held: OnceLock<Held>,
}

impl Body {
    fn block(&self, number: usize, texts: Range<u64>, len: u64, keep: Keep) -> Result<Arc<Vec<u8>>> {
        let cache = &self.engine.cache;
        cache.check_size(len)?;
        let key = CacheKey::tile(self.object, number as u64);
        cache.derive(key, len, keep, || {
            let mut out = Vec::with_capacity(len as usize);
            let mut text = texts.start;
            self.texts.read(texts.clone(), &mut |bytes| {
                check(bytes, text)?;
                out.extend((bytes.len() as u32).to_le_bytes());
                out.extend_from_slice(bytes);
                text += 1;
                Ok(())
            })?;
            match out.len() as u64 == len && text == texts.end {
                true => Ok(out),
                false => Err(Error::corrupt(format!(
                    "texts of {} bytes, but {len} when they were measured",
                    out.len()
                ))),
            }
        })
    }
}

impl Bytes for Body {
    fn len(&self) -> u64 {
        self.blocks.ends.last().map_or(0, |(_, end)| *end)
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        get_or_make(&self.held, || self.texts.hold())?;
        let ends = &self.blocks.ends;
        let mut number = ends.partition_point(|(_, end)| *end <= range.start);
        let mut position = range.start;
        while position < range.end {
            let (text, end) = ends[number];
            let (first, start) = match number {
                0 => (self.blocks.first, 0),
                _ => ends[number - 1],
            };
            let keep = out.keep.unwrap_or(Keep::Staying);
            let block = self.block(number, first..text, end - start, keep)?;
            let part = position - start..range.end.min(end) - start;
            out.share(block, part.start as usize..part.end as usize)?;
            position = end;
            number += 1;
        }
        Ok(())
    }
}

/// One text, which is not in an array.
pub(super) struct OneText(pub(super) Arc<Vec<u8>>);

impl Content for OneText {
    fn chunk(&self, _: &Array, _: &[u64]) -> Result<Parts> {
        let lengths = [1, self.0.len() as u32].map(u32::to_le_bytes).concat();
        Ok(vec![Box::new(lengths), Box::new(self.0.clone())])
    }

    fn in_order(&self, _: &Array) -> Result<InOrder> {
        let mut bytes = self.0.to_vec();
        bytes.resize(bytes.len().max(1), 0);
        Ok(InOrder {
            size: bytes.len() as u64,
            bytes: Box::new(bytes),
        })
    }
}

/// Labels, which are not copied: there may be as many as rows.
impl Texts for Arc<Enumeration> {
    fn lengths(&self, texts: Range<u64>) -> Result<Vec<u64>> {
        let labels = texts.map(|label| label_of(self, label).len() as u64);
        Ok(labels.collect())
    }

    fn read(&self, mut texts: Range<u64>, put: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        texts.try_for_each(|label| put(label_of(self, label)))
    }
}

fn label_of(labels: &Enumeration, label: u64) -> &[u8] {
    labels
        .value(label as usize)
        .expect("an array has as many texts as there are labels")
}

/// The numbers of rows as text.
pub(super) struct RowNumbers;

impl Texts for RowNumbers {
    fn lengths(&self, texts: Range<u64>) -> Result<Vec<u64>> {
        Ok(texts.map(|row| row.to_string().len() as u64).collect())
    }

    fn read(&self, mut texts: Range<u64>, put: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        texts.try_for_each(|row| put(row.to_string().as_bytes()))
    }
}

/// A number as Python's `str` has it, or a date as pandas' has: `2025-02-04 00:00:00`, with as many decimals
/// as its unit has.
pub(super) fn number_text(datatype: Datatype, bytes: &[u8]) -> Option<String> {
    Some(match Scalar::read(datatype, bytes)? {
        Scalar::Unsigned(number) if datatype == Datatype::Bool => match number {
            0 => "False".to_owned(),
            _ => "True".to_owned(),
        },
        Scalar::Unsigned(number) => number.to_string(),
        Scalar::Signed(count) if datatype.kind() == Kind::Datetime => {
            let mut text = Vec::new();
            datetime(datatype, count, &mut text);
            let text = String::from_utf8(text).expect("dates are ASCII");
            match text.split_once('T') {
                Some((day, time)) if !time.is_empty() => format!("{day} {time}"),
                _ => text,
            }
        }
        Scalar::Signed(number) => number.to_string(),
        Scalar::Float32(number) => float_text(&format!("{number:e}")),
        Scalar::Float64(number) => float_text(&format!("{number:e}")),
    })
}

/// A float as Python's `str` has it, given its shortest digits as `-1.25e-7`.
fn float_text(shortest: &str) -> String {
    let Some((digits, exponent)) = shortest.split_once('e') else {
        return shortest.to_lowercase();
    };
    let exponent: i32 = exponent.parse().expect("Rust writes an integer");
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits),
    };
    let plain = digits.replace('.', "");
    if !(-4..16).contains(&exponent) {
        let sign_of = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{digits}e{sign_of}{:02}", exponent.abs());
    }
    match usize::try_from(exponent) {
        Err(_) => format!("{sign}0.{}{plain}", "0".repeat((-exponent - 1) as usize)),
        Ok(whole) if plain.len() <= whole + 1 => {
            format!("{sign}{plain}{}.0", "0".repeat(whole + 1 - plain.len()))
        }
        Ok(whole) => format!("{sign}{}.{}", &plain[..=whole], &plain[whole + 1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::{Type, encoded};
    use super::*;
    use crate::format::datatype::CellValNum;
    use crate::runtime::stats::Stats;
    use crate::storage::MemoryStorage;

    fn labels(texts: &[Vec<u8>]) -> Arc<Enumeration> {
        let starts = texts.iter().scan(0, |end, text| {
            let start = *end;
            *end += text.len() as u64;
            Some(start)
        });
        Arc::new(Enumeration {
            name: Vec::new(),
            file: Vec::new(),
            datatype: Datatype::StringUtf8,
            cell_val_num: CellValNum::Var,
            ordered: false,
            offsets: starts.collect(),
            data: texts.concat(),
        })
    }

    fn array(texts: Vec<Vec<u8>>, side: u64) -> Array {
        let stats: Arc<Stats> = Arc::default();
        let storage = Arc::new(MemoryStorage::default());
        let content = TextChunks {
            engine: Arc::new(Engine::new(storage, 1 << 20, Vec::new(), stats)),
            path: "texts".to_owned(),
            object: 7,
            texts: Arc::new(labels(&texts)),
        };
        let rows = texts.len() as u64;
        let attributes = encoded("string-array", "0.2.0");
        Array::new(Type::Text, vec![rows], vec![side], attributes, content)
    }

    #[test]
    fn any_range_of_a_chunk_of_text_is_what_lies_there() {
        let texts: Vec<Vec<u8>> = (0..700usize).map(|i| vec![b'a'; i * i % 3001]).collect();
        let array = array(texts.clone(), 300);
        assert_eq!(array.counts(), [3]);
        for number in 0..3 {
            let mut expected = 300u32.to_le_bytes().to_vec();
            for row in number * 300..number * 300 + 300 {
                let text = texts.get(row).map_or(&[][..], |text| text);
                expected.extend((text.len() as u32).to_le_bytes());
                expected.extend_from_slice(text);
            }
            let file = array.chunk(&[number as u64], 0).unwrap();
            let len = expected.len();
            assert_eq!(file.len(), len as u64);
            let read = |range: Range<u64>| Output::of(|out| file.read(range, out)).unwrap();
            assert!(*read(0..len as u64) == *expected);
            for start in (0..len).step_by(4999) {
                let end = len.min(start + 140_000);
                assert!(*read(start as u64..end as u64) == expected[start..end], "{start}");
            }
        }
        assert!(array.chunk(&[3], 0).is_err());
    }

    #[test]
    fn texts_of_one_size_are_padded() {
        let texts: Vec<Vec<u8>> = (0..70_000usize).map(|i| vec![b'a'; i * i % 31]).collect();
        let longest = texts.iter().map(Vec::len).max().unwrap();
        let mut expected = Vec::new();
        for text in &texts {
            expected.extend_from_slice(text);
            expected.resize(expected.len().next_multiple_of(longest), 0);
            if text.is_empty() {
                expected.resize(expected.len() + longest, 0);
            }
        }
        let in_order = array(texts, 300).in_order().unwrap();
        assert_eq!(in_order.size, longest as u64);
        let read = |range: Range<u64>| Output::of(|out| in_order.bytes.read(range, out)).unwrap();
        assert!(*read(0..in_order.bytes.len()) == *expected);
        for start in (0..expected.len()).step_by(99_991) {
            for length in [0, 1, 29, 30, 31, 64, 5000] {
                let end = expected.len().min(start + length);
                assert!(
                    *read(start as u64..end as u64) == expected[start..end],
                    "{start}..{end}"
                );
            }
        }
        // HDF5 has no text of no bytes.
        assert_eq!(array(vec![Vec::new(); 3], 3).in_order().unwrap().size, 1);
        assert_eq!(array(Vec::new(), 1).in_order().unwrap().bytes.len(), 0);
    }

    #[test]
    fn text_that_is_not_utf8_is_an_error_and_its_length_is_known() {
        let file = array(vec![b"good".to_vec(), vec![0xFF]], 2)
            .chunk(&[0], 0)
            .unwrap();
        assert_eq!(file.len(), 4 + 4 + 4 + 4 + 1);
        let error = Output::of(|out| file.read(0..17, out)).err().unwrap();
        assert!(error.message().contains("row 1"), "{error}");
        let padded = array(vec![b"good".to_vec(), vec![0xFF]], 2).in_order().unwrap();
        assert_eq!(*Output::of(|out| padded.bytes.read(0..4, out)).unwrap(), *b"good");
        let error = Output::of(|out| padded.bytes.read(0..5, out)).err().unwrap();
        assert!(error.message().contains("row 1"), "{error}");
    }

    #[test]
    fn floats_are_as_python_writes_them() {
        let expected = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (1234.5, "1234.5"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-1.5e300, "-1.5e+300"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, text) in expected {
            let found = number_text(Datatype::Float64, &f64::to_le_bytes(number)).unwrap();
            assert_eq!(found, text);
        }
        let single = number_text(Datatype::Float32, &0.1f32.to_le_bytes());
        assert_eq!(single.unwrap(), "0.1");
        assert_eq!(number_text(Datatype::Bool, &[2]).unwrap(), "True");
        for (datatype, text) in [
            (Datatype::DatetimeDay, "1969-12-31"),
            (Datatype::DatetimeSec, "1969-12-31 23:59:59"),
            (Datatype::DatetimeUs, "1969-12-31 23:59:59.999999"),
        ] {
            assert_eq!(number_text(datatype, &i64::to_le_bytes(-1)).unwrap(), text);
        }
        let no_time = number_text(Datatype::DatetimeNs, &i64::to_le_bytes(i64::MIN));
        assert_eq!(no_time.unwrap(), "NaT");
    }
}
