//! Where the heads of HTTP/1 requests begin and end in what a connection receives.
//!
//! hyper parses the requests. This knows just enough of them for two things: how long a head has been on its
//! way, and whether its framing is ambiguous (two lengths), which programs before and behind us could
//! understand differently. Only one head is handed on before its answer has begun, so that what is said of it
//! here is about that request.

/// The most bytes of a head.
pub const MAX_HEAD: usize = 32 << 10;

/// The most bytes of the first line that are handed on.
const MAX_LINE: usize = 16 << 10;

/// What is handed on in place of the rest of a head whose first line is longer. Then the request has a target
/// that is too long, and is refused as that.
pub const CUT_LINE: &[u8] = b" HTTP/1.1\r\n\r\n";

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The head of a request.
    Head,
    /// Bytes of a body.
    Body(u64),
    /// [`CUT_LINE`].
    Cut,
    /// A body of unknown length, after which the connection ends.
    Rest,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Framing {
    next: Next,
    /// The head so far.
    head: Vec<u8>,
}

/// What a head says about the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// There is none, or it has this many bytes.
    Length(u64),
    /// It ends where its own encoding says.
    Encoded,
    /// The lines contradict each other, or are not valid.
    Ambiguous,
}

impl Default for Framing {
    /// Before the first request.
    fn default() -> Self {
        Framing {
            next: Next::Head,
            head: Vec::new(),
        }
    }
}

impl Framing {
    /// Whether a head has begun and not ended.
    pub fn is_in_head(&self) -> bool {
        self.next == Next::Head && !self.head.is_empty()
    }

    /// Whether the next byte belongs to another request.
    pub fn is_between(&self) -> bool {
        self.next == Next::Head && self.head.is_empty()
    }

    /// Whether [`CUT_LINE`] comes next. It counts as handed on then, and the connection ends with the answer.
    pub fn cut(&mut self) -> bool {
        let cut = self.next == Next::Cut;
        if cut {
            self.next = Next::Rest;
        }
        cut
    }

    /// How many of `bytes`, which are not empty, belong to the request that is being received. With them its
    /// head may end: then what it says about the body.
    pub fn take(&mut self, bytes: &[u8]) -> (usize, Option<Body>) {
        match self.next {
            Next::Cut => (0, None),
            Next::Rest => (bytes.len(), None),
            Next::Body(left) => {
                let taken = left.min(bytes.len() as u64);
                self.next = match left - taken {
                    0 => Next::Head,
                    left => Next::Body(left),
                };
                (taken as usize, None)
            }
            Next::Head => {
                for (index, byte) in bytes.iter().enumerate() {
                    // Empty lines before a request are skipped.
                    if self.head.is_empty() && matches!(byte, b'\r' | b'\n') {
                        continue;
                    }
                    self.head.push(*byte);
                    let ended =
                        *byte == b'\n' && (self.head.ends_with(b"\n\n") || self.head.ends_with(b"\n\r\n"));
                    if ended {
                        let body = body_of(&self.head);
                        self.head = Vec::new();
                        self.next = match body {
                            Body::Length(0) => Next::Head,
                            Body::Length(len) => Next::Body(len),
                            Body::Encoded | Body::Ambiguous => Next::Rest,
                        };
                        return (index + 1, Some(body));
                    }
                    if self.head.len() == MAX_LINE && !self.head.contains(&b'\n') {
                        self.head = Vec::new();
                        self.next = Next::Cut;
                        return (index + 1, None);
                    }
                    if self.head.len() > MAX_HEAD {
                        // hyper refuses it, and ends the connection.
                        self.head = Vec::new();
                        self.next = Next::Rest;
                        return (bytes.len(), None);
                    }
                }
                (bytes.len(), None)
            }
        }
    }
}

/// What the lines of a head say about the body.
fn body_of(head: &[u8]) -> Body {
    let (mut length, mut encoded) = (None, false);
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let name = &line[..colon];
        let value = line[colon + 1..].trim_ascii();
        if name.trim_ascii().eq_ignore_ascii_case(b"transfer-encoding") {
            encoded = true;
        } else if name.trim_ascii().eq_ignore_ascii_case(b"content-length") {
            let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(value).ok().filter(|_| digits);
            match (length, text.and_then(|text| text.parse::<u64>().ok())) {
                (None, Some(value)) => length = Some(value),
                _ => return Body::Ambiguous,
            }
        }
    }
    match (length, encoded) {
        (Some(_), true) => Body::Ambiguous,
        (None, true) => Body::Encoded,
        (Some(length), false) => Body::Length(length),
        (None, false) => Body::Length(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests in `bytes`, given in pieces of `size` bytes, with what their heads say.
    fn split(bytes: &[u8], size: usize) -> Vec<(Vec<u8>, Option<Body>)> {
        let (mut framing, mut requests) = (Framing::default(), vec![(Vec::new(), None)]);
        for piece in bytes.chunks(size) {
            let mut piece = piece;
            while !piece.is_empty() {
                if framing.is_between() && requests.last().unwrap().1.is_some() {
                    requests.push((Vec::new(), None));
                }
                let (taken, body) = framing.take(piece);
                let last = requests.last_mut().unwrap();
                last.0.extend_from_slice(&piece[..taken]);
                last.1 = last.1.or(body);
                piece = &piece[taken..];
            }
        }
        requests
    }

    #[test]
    fn requests_are_told_apart_however_they_arrive() {
        let requests: [(&[u8], _); 4] = [
            (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", Body::Length(0)),
            (
                b"PROPFIND / HTTP/1.1\r\ncontent-LENGTH: 5 \r\n\r\na\r\n\r\n",
                Body::Length(5),
            ),
            (b"\r\nGET /a HTTP/1.1\nHost: b\n\n", Body::Length(0)),
            (
                b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nGET",
                Body::Encoded,
            ),
        ];
        let all = requests.map(|(bytes, _)| bytes).concat();
        let expected = requests.map(|(bytes, body)| (bytes.to_vec(), Some(body)));
        for size in [1, 2, 3, 7, 20, 1000] {
            assert_eq!(split(&all, size), expected, "{size}");
        }
    }

    #[test]
    fn lengths_that_contradict_each_other_are_found() {
        for lines in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 3",
            "Content-Length: 3\r\nContent-Length: 3",
            "Content-Length: 3, 3",
            "Content-Length: +3",
            "Content-Length: 0x3",
            "Content-Length:",
            "Content-Length: 99999999999999999999",
            "Content-Length : 3\r\nTransfer-Encoding: identity",
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\nabc");
            assert_eq!(
                split(head.as_bytes(), 1000)[0].1,
                Some(Body::Ambiguous),
                "{lines}"
            );
        }
    }

    #[test]
    fn a_head_has_a_limit() {
        let mut framing = Framing::default();
        assert_eq!(framing.take(b"GET / HTTP/1.1\n"), (15, None));
        for _ in 15..MAX_HEAD {
            assert_eq!(framing.take(b"x"), (1, None));
            assert!(framing.is_in_head());
        }
        framing.take(b"x");
        assert!(!framing.is_in_head() && !framing.is_between() && !framing.cut());
    }

    #[test]
    fn a_first_line_that_is_too_long_is_cut() {
        for size in [1, 7, MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 3 * MAX_LINE] {
            let mut framing = Framing::default();
            let mut handed = 0;
            for piece in vec![b'x'; 3 * MAX_LINE].chunks(size) {
                let (taken, body) = framing.take(piece);
                assert_eq!(body, None);
                handed += taken;
                if taken < piece.len() || handed == MAX_LINE {
                    break;
                }
            }
            assert_eq!(handed, MAX_LINE, "{size}");
            assert!(framing.cut() && !framing.cut() && !framing.is_between());
        }
        let mut framing = Framing::default();
        let line = [&vec![b'x'; MAX_LINE - 1][..], b"\n"].concat();
        assert_eq!(framing.take(&line), (MAX_LINE, None));
        assert!(!framing.cut() && framing.is_in_head());
    }
}
