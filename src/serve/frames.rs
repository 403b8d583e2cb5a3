//! Where the frames of HTTP/2 begin and end in one direction of a connection.
//!
//! hyper reads and writes them. This knows just enough of them for two clocks: how long the head of a request
//! has been on its way, and when a client last took something of an answer. A frame (RFC 9113, 4.1), big
//! endian:
//!
//! | bytes | |
//! |--:|---|
//! | 3 | length of the payload |
//! | 1 | type |
//! | 1 | flags |
//! | 4 | stream |
//! | | payload |

/// Bytes that a client sends before its first frame.
const PREFACE: u32 = 24;

/// Bytes before the payload.
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// Flag of HEADERS and CONTINUATION: no CONTINUATION follows.
const END_HEADERS: u8 = 4;

/// What passes in one direction of a connection.
#[derive(Debug, Default)]
pub struct Frames {
    /// What is there of the bytes before the payload.
    head: [u8; HEAD],
    /// How many of them are there. None while there is a part of the preface.
    have: usize,
    /// Bytes that are to come of the payload, or of the preface.
    left: u32,
    /// Whether a head goes on in the next frame.
    goes_on: bool,
}

/// What has passed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Whether a frame has ended that is not followed by a part of the same head.
    pub ended: bool,
    /// Whether there was a part of an answer: of its head, or of its body. Other frames, as the reply to
    /// PING, are sent to a client who takes nothing, too.
    pub answer: bool,
}

impl Frames {
    /// Before the first byte that a client sends.
    pub fn of_client() -> Frames {
        Frames {
            left: PREFACE,
            ..Frames::default()
        }
    }

    /// Whether no frame has begun that has not ended, and no head.
    pub fn is_between(&self) -> bool {
        self.have == 0 && self.left == 0 && !self.goes_on
    }

    /// Follows the next bytes.
    pub fn pass(&mut self, mut bytes: &[u8]) -> Passed {
        let mut passed = Passed::default();
        while let Some(first) = bytes.first() {
            if self.left > 0 {
                let count = bytes.len().min(self.left as usize);
                bytes = &bytes[count..];
                self.left -= count as u32;
                passed.answer |= self.have == HEAD && matches!(self.head[3], DATA | HEADERS | CONTINUATION);
            } else {
                self.head[self.have] = *first;
                self.have += 1;
                bytes = &bytes[1..];
                if self.have < HEAD {
                    continue;
                }
                let [a, b, c, kind, flags, ..] = self.head;
                self.left = u32::from_be_bytes([0, a, b, c]);
                if matches!(kind, HEADERS | CONTINUATION) {
                    self.goes_on = flags & END_HEADERS == 0;
                }
            }
            if self.left == 0 {
                self.have = 0;
                passed.ended |= !self.goes_on;
            }
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn frames_end_where_they_say_however_they_arrive() {
        const SETTINGS: u8 = 4;
        const PING: u8 = 6;
        let steps = [
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), true, false),
            (frame(SETTINGS, 0, &[]), true, false),
            (frame(HEADERS, 0, b"abc"), false, true),
            (frame(CONTINUATION, 0, &[]), false, false),
            (frame(CONTINUATION, END_HEADERS, b"d"), true, true),
            (frame(PING, 0, &[0; 8]), true, false),
            (frame(DATA, 1, &[7; 300]), true, true),
            (frame(DATA, 1, &[]), true, false),
        ];
        for size in [1, 2, 8, 9, 10, 1000] {
            let mut frames = Frames::of_client();
            for (bytes, between, answer) in &steps {
                let mut passed = Passed::default();
                for piece in bytes.chunks(size) {
                    let one = frames.pass(piece);
                    passed.ended |= one.ended;
                    passed.answer |= one.answer;
                }
                let expected = Passed {
                    ended: *between,
                    answer: *answer,
                };
                assert_eq!(
                    (passed, frames.is_between()),
                    (expected, *between),
                    "{size}: {bytes:?}"
                );
            }
        }
    }
}
