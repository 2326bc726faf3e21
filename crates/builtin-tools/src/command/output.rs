//! The bounded output of a command.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use backstop_redact::Redactor;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use layer0::JsonText;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The most bytes kept of each output, where no rule sets another limit.
pub(super) const MAX_OUTPUT_BYTES: usize = 8 * 1024 * 1024;
/// The bytes kept beyond a cut, so that a secret across the cut is seen whole.
const SEAM_BYTES: usize = 16 * 1024;
/// The most bytes of one read.
const PIECE_BYTES: usize = 16 * 1024;

/// The output that a command has written to one stream so far.
pub(super) struct CommandOutput(Mutex<OutputBuffer>);

struct OutputBuffer {
    /// The most bytes that are shown, half from the head and half from the tail of a longer output.
    limit: usize,
    /// The first bytes: as many as are shown, and enough to see a secret across a cut whole.
    head: Vec<u8>,
    /// The last bytes after the head.
    tail: VecDeque<u8>,
    total: usize,
}

/// A whole output, or its two ends.
pub(super) enum OutputText {
    Cut { head: Vec<u8>, left_out: usize, tail: Vec<u8> },
    Whole(Vec<u8>),
}

impl CommandOutput {
    /// Keeps at most so many bytes.
    pub(super) const fn new(limit: usize) -> Self {
        Self(Mutex::new(OutputBuffer::new(limit)))
    }

    /// Reads to the end. Excess output is read too, so that the command can end by itself.
    pub(super) async fn read(&self, stream: Option<impl AsyncRead + Unpin>) {
        let Some(mut stream) = stream else { return };
        let mut piece = vec![0; PIECE_BYTES];
        // A stream that cannot be read any more has ended.
        while let Ok(count @ 1..) = stream.read(&mut piece).await {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(&piece[..count]);
        }
    }

    /// Returns the output so far.
    pub(super) fn text(&self, redactor: &Redactor) -> OutputText {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).text(redactor)
    }
}

impl OutputBuffer {
    const fn new(limit: usize) -> Self {
        Self { limit, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    /// Returns the number of bytes kept of the head, and of the tail, of an output that is longer than the limit.
    const fn end(&self) -> usize {
        self.limit / 2
    }

    fn push(&mut self, piece: &[u8]) {
        self.total = self.total.saturating_add(piece.len());
        let span = self.end() + SEAM_BYTES;
        let room = self.limit.max(span) - self.head.len();
        let (head, tail) = piece.split_at(room.min(piece.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(tail);
        let excess = self.tail.len().saturating_sub(span);
        self.tail.drain(..excess);
    }

    fn text(&self, redactor: &Redactor) -> OutputText {
        if self.total <= self.limit {
            return OutputText::Whole(self.head.clone());
        }
        let (end, span) = (self.end(), self.end() + SEAM_BYTES);
        // A secret that is cut in half would not be found any more.
        let begin = &self.head[..span.min(self.head.len())];
        let beyond = begin.len() - end;
        let head = redactor.redact_bytes(begin).into_owned();
        let missing = (span - self.tail.len()).min(self.head.len());
        let rest = self.head[self.head.len() - missing..].iter();
        let tail: Vec<u8> = rest.chain(&self.tail).copied().collect();
        let before = tail.len() - end;
        let tail = redactor.redact_bytes(&tail).into_owned();
        let (head, head_rest) = trim_head(&head, head.len().saturating_sub(beyond));
        let (tail_rest, tail) = trim_tail(&tail, before.min(tail.len()));
        let left_out = self.total - 2 * end + head_rest + tail_rest;
        OutputText::Cut { head: head.to_vec(), left_out, tail: tail.to_vec() }
    }
}

/// Returns the bytes before a cut without the character that it cuts, and how many bytes that one has
/// before the cut.
fn trim_head(bytes: &[u8], cut: usize) -> (&[u8], usize) {
    let cut_char = (1..=3.min(cut)).find(|back| bytes[cut - back] & 0xC0 != 0x80).filter(|back| {
        let length = match bytes[cut - back] {
            0xF0..=0xF7 => 4,
            0xE0..=0xEF => 3,
            0xC0..=0xDF => 2,
            _ => 1,
        };
        length > *back
    });
    let rest = cut_char.unwrap_or(0);
    (&bytes[..cut - rest], rest)
}

/// Returns the number of bytes that a cut character has after the cut, and the bytes behind them.
fn trim_tail(bytes: &[u8], cut: usize) -> (usize, &[u8]) {
    let rest = bytes[cut..].iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    (rest, &bytes[cut + rest..])
}

impl OutputText {
    pub(super) fn is_blank(&self) -> bool {
        match self {
            Self::Cut { .. } => false,
            Self::Whole(bytes) => bytes.trim_ascii().is_empty(),
        }
    }

    /// Returns it as a tool's output: an object or an array of JSON as written, all else as text.
    pub(super) fn into_output(self) -> JsonText {
        let text = self.readable();
        let is_json = matches!(self, Self::Whole(_)) && text.trim_start().starts_with(['{', '[']);
        let json = if is_json { JsonText::parse(&text).ok() } else { None };
        json.unwrap_or_else(|| JsonText::string(&text))
    }

    /// Returns it as the text of an error. Where it is no UTF-8, as JSON that holds both the readable
    /// part and the bytes, so that nothing of an error is lost but its secrets, which encoding would
    /// hide.
    pub(super) fn into_error(self, redactor: &Redactor) -> String {
        let readable = self.readable();
        match self {
            Self::Cut { head, left_out, tail } => {
                if std::str::from_utf8(&head).is_ok() && std::str::from_utf8(&tail).is_ok() {
                    return readable;
                }
                let (head, tail) = (STANDARD.encode(head), STANDARD.encode(tail));
                json!({
                    "message": readable,
                    "head_base64": head,
                    "bytes_left_out": left_out,
                    "tail_base64": tail,
                })
                .to_string()
            }
            Self::Whole(bytes) => String::from_utf8(bytes).unwrap_or_else(|error| {
                let bytes = redactor.redact_bytes(error.as_bytes());
                let encoded = STANDARD.encode(&bytes);
                json!({"message": String::from_utf8_lossy(&bytes), "bytes_base64": encoded})
                    .to_string()
            }),
        }
    }

    pub(super) fn readable(&self) -> String {
        match self {
            Self::Cut { head, left_out, tail } => {
                let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
                let bytes = if *left_out == 1 { "byte" } else { "bytes" };
                format!("{head}\n[{left_out} {bytes} left out here]\n{tail}")
            }
            Self::Whole(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        }
    }
}

/// Returns the output of a command until it was given up.
pub(super) fn format_partial_output(
    out: &CommandOutput,
    err: &CommandOutput,
    redactor: &Redactor,
) -> Option<String> {
    let parts = [("standard output", out), ("standard error", err)].map(|(name, output)| {
        let text = output.text(redactor);
        (!text.is_blank()).then(|| format!("{name}:\n{}", text.into_error(redactor)))
    });
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(total: usize, piece: &[u8]) -> OutputText {
        let mut held = OutputBuffer::new(MAX_OUTPUT_BYTES);
        let mut left = total;
        while left > 0 {
            let count = left.min(piece.len());
            held.push(&piece[..count]);
            left -= count;
        }
        held.text(&Redactor::new())
    }

    /// Returns the number of bytes kept of the head, and of the tail, of an output that is longer than the limit.
    const END_BYTES: usize = MAX_OUTPUT_BYTES / 2;

    /// Spec: N1. A limit may be smaller than what is held to find secrets.
    #[test]
    fn small_limit_keeps_both_ends() {
        for (limit, total) in [(1_024, 1_025), (1_024, 40_000), (1_024, 400_000), (40_000, 90_001)]
        {
            let bytes: Vec<u8> =
                (0..total).map(|at| b'a' + u8::try_from(at % 26).unwrap()).collect();
            let mut held = OutputBuffer::new(limit);
            bytes.chunks(777).for_each(|piece| held.push(piece));
            let OutputText::Cut { head, left_out, tail } = held.text(&Redactor::new()) else {
                panic!("not cut")
            };
            assert_eq!(
                (head.as_slice(), tail.as_slice()),
                (&bytes[..limit / 2], &bytes[total - limit / 2..])
            );
            assert_eq!(left_out, total - limit);
        }
    }

    /// Spec: N4
    #[test]
    fn an_output_is_whole_up_to_its_limit() {
        for (total, expected) in [
            (0, None),
            (MAX_OUTPUT_BYTES, None),
            (MAX_OUTPUT_BYTES + 1, Some(1)),
            (MAX_OUTPUT_BYTES + END_BYTES, Some(END_BYTES)),
            (5 * MAX_OUTPUT_BYTES, Some(4 * MAX_OUTPUT_BYTES)),
        ] {
            match text(total, &[b'x'; 10_007]) {
                OutputText::Whole(bytes) => assert_eq!((bytes.len(), None), (total, expected)),
                OutputText::Cut { head, left_out, tail } => {
                    assert_eq!(Some(left_out), expected);
                    assert_eq!(head.len() + left_out + tail.len(), total);
                }
            }
        }
    }

    /// Spec: N4
    #[test]
    fn a_cut_goes_through_no_character() {
        // Each piece moves the cuts by one byte against the characters.
        for before in 0..4 {
            let mut held = OutputBuffer::new(MAX_OUTPUT_BYTES);
            held.push(&b"abcd"[..before]);
            for _ in 0..1_000 {
                held.push("\u{1F600}".repeat(3_000).as_bytes());
            }
            let OutputText::Cut { head, left_out, tail } = held.text(&Redactor::new()) else {
                panic!("not cut")
            };
            assert!(std::str::from_utf8(&head).is_ok() && std::str::from_utf8(&tail).is_ok());
            assert_eq!(head.len() + left_out + tail.len(), 12_000_000 + before);
        }
    }

    /// Spec: N4, S3
    #[test]
    fn binary_output_is_kept_around_a_cut() {
        let error = text(MAX_OUTPUT_BYTES + 9, b"\xff\xfe\x80").into_error(&Redactor::new());
        let raw: serde_json::Value = serde_json::from_str(&error).unwrap();
        let part = |name: &str| STANDARD.decode(raw[name].as_str().unwrap()).unwrap().len();
        let left_out = usize::try_from(raw["bytes_left_out"].as_u64().unwrap()).unwrap();
        assert_eq!(part("head_base64") + left_out + part("tail_base64"), MAX_OUTPUT_BYTES + 9);
        assert!(left_out < 16, "{left_out}");
    }

    /// Spec: E10
    #[test]
    fn a_secret_across_a_cut_is_taken_out() {
        let secret = "held-secret-key";
        let redactor = Redactor::new().with_secret(secret);
        for before in [1, 7, secret.len() - 1] {
            let mut bytes = vec![b' '; 2 * MAX_OUTPUT_BYTES];
            for cut in [END_BYTES, bytes.len() - END_BYTES] {
                let at = cut - before;
                bytes[at..at + secret.len()].copy_from_slice(secret.as_bytes());
            }
            let mut held = OutputBuffer::new(MAX_OUTPUT_BYTES);
            held.push(&bytes);
            let shown = held.text(&redactor).readable();
            let parts: Vec<&str> = shown.split_whitespace().collect();
            let all = parts.join(" ");
            for part in ["held", "ret", "key", " h", "y "] {
                assert!(!all.replace("bytes left out here", "").contains(part), "{before}: {all}");
            }
        }
    }
}
