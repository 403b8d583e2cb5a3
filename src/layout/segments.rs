//! Documents that may be large, as a sequence of segments, each rendered when it is read.
//!
//! Only the length of each segment is kept, so that the length of the document is exact and a read renders
//! only what it covers. The text goes through the cache, as decoded chunks do.

use crate::bytes::{Bytes, Keep, Output};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::cache::{CacheKey, Lengths};
use crate::runtime::{hash, parallel};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a segment's text is to have, about, in bytes.
const TARGET: u64 = 128 << 10;

/// The most bytes of text in a document, because a few stored bytes may stand for any number of equal values.
const MOST: u64 = 4 << 30;

/// A document as a sequence of parts, each of a number of items that can be rendered on their own.
pub trait Parts: Send + Sync {
    /// Appends the text of the items in `items` of part `part`, with what comes before the first and after
    /// the last item of the part. Always the same bytes. For a part without items, `items` is 0 to 0.
    fn write(&self, part: usize, items: Range<u64>, out: &mut Vec<u8>) -> Result<()>;
}

/// Cuts the parts of a document into segments.
#[derive(Debug)]
pub struct Cutter {
    /// Part and item with which each segment begins.
    starts: Vec<(usize, u64)>,
    /// Items of each part.
    counts: Vec<u64>,
    /// About the bytes of the segment under way, and of all.
    weight: u64,
    total: u64,
}

impl Cutter {
    /// What a part takes up besides its items.
    const PART: u64 = 64;

    /// A cutter at the beginning.
    pub fn new() -> Self {
        Cutter {
            starts: vec![(0, 0)],
            counts: Vec::new(),
            weight: 0,
            total: 0,
        }
    }

    /// Begins the next part.
    pub fn part(&mut self) {
        if self.weight >= TARGET {
            self.starts.push((self.counts.len(), 0));
            self.weight = 0;
        }
        self.weight = self.weight.saturating_add(Self::PART);
        self.counts.push(0);
    }

    /// Adds `count` items to the part, each of about `bytes` bytes of text. Fails if that is far above what a
    /// document may have.
    pub fn items(&mut self, count: u64, bytes: u64) -> Result<()> {
        let bytes = bytes.max(1);
        self.total = self.total.saturating_add(count.saturating_mul(bytes));
        // Guesses are sometimes too high.
        check_length(self.total / 16)?;
        let part = self.counts.len() - 1;
        let have = &mut self.counts[part];
        let end = *have + count;
        while *have < end {
            let room = TARGET.saturating_sub(self.weight) / bytes;
            let fits = if room == 0 && *have > 0 {
                self.starts.push((part, *have));
                self.weight = 0;
                (TARGET / bytes).max(1)
            } else {
                room.max(1)
            };
            let taken = fits.min(end - *have);
            *have += taken;
            self.weight = self.weight.saturating_add(taken.saturating_mul(bytes));
        }
        Ok(())
    }

    /// The segments of the document that `parts` writes. If none was begun, it has one part without items.
    pub fn finish(mut self, parts: impl Parts + 'static) -> Segments {
        if self.counts.is_empty() {
            self.part();
        }
        Segments {
            parts: Box::new(parts),
            starts: self.starts,
            counts: self.counts,
        }
    }
}

impl Default for Cutter {
    fn default() -> Self {
        Self::new()
    }
}

fn check_length(length: u64) -> Result<()> {
    if length > MOST {
        return Err(Error::limit(format!(
            "the document has more than the {MOST} bytes allowed"
        )));
    }
    Ok(())
}

/// A document cut into segments.
pub struct Segments {
    parts: Box<dyn Parts>,
    starts: Vec<(usize, u64)>,
    counts: Vec<u64>,
}

impl Segments {
    /// The number of segments; at least 1.
    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// Appends the text of segment `segment`.
    pub fn write(&self, segment: usize, out: &mut Vec<u8>) -> Result<()> {
        let end_of_all = (self.counts.len(), 0);
        let (first, item) = self.starts[segment];
        let &(last, end) = self.starts.get(segment + 1).unwrap_or(&end_of_all);
        for part in first..=last {
            let from = if part == first { item } else { 0 };
            let to = match self.counts.get(part) {
                Some(_) if part == last && end == 0 => break,
                Some(_) if part == last => end,
                Some(count) => *count,
                None => break,
            };
            self.parts.write(part, from..to, out)?;
        }
        Ok(())
    }

    /// The whole text.
    pub fn render(&self) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        for segment in 0..self.count() {
            self.write(segment, &mut text)?;
        }
        Ok(text)
    }

    /// Where each segment ends in the text, and a hash of its text. Renders all of them, on all cores.
    pub fn measure(&self) -> Result<Lengths> {
        /// Fewer segments than this are not worth a thread.
        const EACH: u64 = 4;
        let total = AtomicU64::new(0);
        let count = self.count() as u64;
        let measured = parallel::each(count.div_ceil(EACH), |number| -> Result<Vec<(u64, u64)>> {
            let mut text = Vec::new();
            let segments = number * EACH..count.min((number + 1) * EACH);
            let measured = segments.map(|segment| {
                text.clear();
                self.write(segment as usize, &mut text)?;
                let length = text.len() as u64;
                let before = total.fetch_add(length, Ordering::Relaxed);
                check_length(before + length)?;
                Ok((length, hash(&text)))
            });
            measured.collect()
        })?;
        let measured = measured.concat();
        let mut sum = 0u64;
        let mut ends = Vec::with_capacity(measured.len());
        for (length, _) in &measured {
            sum += length;
            ends.push(sum);
        }
        let version = hash(&measured);
        Ok(Lengths { ends, version })
    }
}

/// An open document in segments: each is rendered when it is read, through the cache.
pub struct Rendered {
    engine: Arc<Engine>,
    segments: Segments,
    lengths: Arc<Lengths>,
    object: u64,
}

impl Rendered {
    /// The document of `segments`, which were measured as `lengths`. `object` identifies the document and its
    /// state in the cache.
    pub fn new(engine: Arc<Engine>, segments: Segments, lengths: Arc<Lengths>, object: u64) -> Self {
        Rendered {
            engine,
            segments,
            lengths,
            object,
        }
    }

    fn text(&self, segment: usize, length: u64, keep: Keep) -> Result<Arc<Vec<u8>>> {
        let key = CacheKey::tile(self.object, segment as u64);
        self.engine.cache.derive(key, length, keep, || {
            // A little more: strings are written with quotes that are taken away.
            let mut text = Vec::with_capacity(length as usize + 64);
            self.segments.write(segment, &mut text)?;
            if text.len() as u64 != length {
                // Some blocks of the file were damaged or repaired meanwhile.
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!(
                        "the text has {} bytes, but had {length} when it was measured",
                        text.len()
                    ),
                ));
            }
            Ok(text)
        })
    }
}

impl Bytes for Rendered {
    fn len(&self) -> u64 {
        self.lengths.total()
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let ends = &self.lengths.ends;
        let first = ends.partition_point(|end| *end <= range.start);
        let mut from = if first == 0 { 0 } else { ends[first - 1] };
        for (segment, &end) in ends.iter().enumerate().skip(first) {
            if from >= range.end {
                break;
            }
            let keep = out.keep.unwrap_or(Keep::Staying);
            let text = self.text(segment, end - from, keep)?;
            let part = range.start.max(from)..range.end.min(end);
            out.share(text, (part.start - from) as usize..(part.end - from) as usize)?;
            from = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::FileLayout;
    use crate::runtime::stats::Stats;
    use crate::storage::MemoryStorage;

    fn engine(cache: u64) -> Arc<Engine> {
        let stats: Arc<Stats> = Arc::default();
        Arc::new(Engine::new(
            Arc::new(MemoryStorage::default()),
            cache,
            Vec::new(),
            stats,
        ))
    }

    /// Parts of these numbers of items, each part in brackets, each item its number and commas up to a length
    /// of its own.
    struct Numbers(Vec<u64>);

    impl Parts for Numbers {
        fn write(&self, part: usize, items: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
            let count = self.0[part];
            assert!(items.start <= items.end && items.end <= count);
            if items.start == 0 {
                out.push(b'[');
            }
            for item in items.clone() {
                out.extend(format!("{item}").bytes());
                out.resize(out.len() + (item * item % 50_000) as usize, b',');
            }
            if items.end == count {
                out.push(b']');
            }
            Ok(())
        }
    }

    fn segments(counts: &[u64], bytes: u64) -> Segments {
        let mut cutter = Cutter::new();
        for count in counts {
            cutter.part();
            cutter.items(*count, bytes).unwrap();
        }
        cutter.finish(Numbers(counts.to_vec()))
    }

    fn whole(counts: &[u64]) -> Vec<u8> {
        let mut text = Vec::new();
        for (part, count) in counts.iter().enumerate() {
            Numbers(counts.to_vec())
                .write(part, 0..*count, &mut text)
                .unwrap();
        }
        text
    }

    #[test]
    fn segments_together_are_the_document() {
        for counts in [&[0][..], &[1], &[5, 0, 0, 7], &[300], &[0, 90, 1, 2, 200, 0]] {
            for bytes in [1, 1000, 60_000, 1 << 25] {
                let segments = segments(counts, bytes);
                assert!(
                    segments.render().unwrap() == whole(counts),
                    "{counts:?} of {bytes}"
                );
                let ends = segments.measure().unwrap().ends;
                assert_eq!(ends.len(), segments.count());
                assert_eq!(ends.last().copied(), Some(whole(counts).len() as u64));
            }
        }
        assert_eq!(segments(&[3, 3, 3], 60_000).count(), 4);
        assert_eq!(segments(&vec![0; 5000], 1).count(), 3);
    }

    #[test]
    fn a_read_gives_what_lies_there_whatever_the_segments() {
        let counts = [0, 90, 1, 2, 60, 0];
        let text = whole(&counts);
        // Room for all segments, for few and for none.
        for cache in [64 << 20, 1 << 20, 1] {
            let segments = segments(&counts, 60_000);
            let ends = segments.measure().unwrap().ends;
            assert!(ends.len() > 50);
            let lengths = Arc::new(Lengths {
                ends: ends.clone(),
                version: 0,
            });
            let rendered = Rendered::new(engine(cache), segments, lengths, 7);
            let open = FileLayout::new(0, vec![Box::new(rendered)]).unwrap();
            assert_eq!(open.len(), text.len() as u64);
            let mut out = Output::new();
            let mut check = |offset: u64, size: usize| {
                let end = text.len().min(offset as usize + size);
                let expected = text.get(offset as usize..end).unwrap_or(&[]);
                out.clear();
                open.read(offset..offset + size as u64, &mut out).unwrap();
                assert!(*out == *expected, "{size} at {offset}");
            };
            let edges = [0].into_iter().chain(ends.iter().copied());
            for edge in edges.step_by(if cache == 1 { 9 } else { 1 }) {
                for offset in edge.saturating_sub(2)..edge + 3 {
                    for size in [0, 1, 2, 3, 4, 5, 100_000, 1 << 20] {
                        check(offset, size);
                    }
                }
            }
            check(0, text.len() * 2);
            check(text.len() as u64 + 10, 5);
        }
    }

    #[test]
    fn a_document_of_very_many_items_is_refused() {
        let mut cutter = Cutter::new();
        cutter.part();
        let refused = cutter.items(1 << 60, 1).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn the_first_error_of_a_document_is_its_error() {
        struct Broken;
        impl Parts for Broken {
            fn write(&self, part: usize, _: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
                out.push(b'x');
                match part {
                    0..20 => Ok(()),
                    part => Err(Error::corrupt(format!("part {part}"))),
                }
            }
        }
        let mut cutter = Cutter::new();
        for _ in 0..40 {
            cutter.part();
            cutter.items(1, TARGET).unwrap();
        }
        let error = cutter.finish(Broken).measure().unwrap_err();
        assert_eq!(error.message(), "part 20");
    }
}
