//! Lines of bounded length.

use tokio::io::AsyncReadExt;

use crate::MAX_MESSAGE_BYTES;
use crate::spawn::Output;

/// Initial capacity of the buffer. It grows for a longer line, and the extra room is released after that.
const ROOM: usize = 8 * 1024;

/// Splits a program's output into lines.
pub(super) struct LineReader {
    output: Output,
    buffer: Vec<u8>,
    /// Number of bytes in the buffer that are known to contain no line end.
    scanned: usize,
    /// Whether the rest of a long line is being skipped.
    is_skipping: bool,
    is_over: bool,
}

/// A line of output.
pub(super) enum OutputLine {
    Whole(Vec<u8>),
    /// The last line, if it has no end.
    Unended(Vec<u8>),
    TooLong,
    End,
}

impl LineReader {
    pub(super) fn new(output: Output) -> Self {
        Self { output, buffer: Vec::new(), scanned: 0, is_skipping: false, is_over: false }
    }

    /// Returns the next line.
    ///
    /// Dropping the future loses nothing: all read bytes are in the buffer.
    pub(super) async fn next(&mut self) -> OutputLine {
        loop {
            let end = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end {
                let rest = self.buffer.split_off(self.scanned + end + 1);
                let line = std::mem::replace(&mut self.buffer, rest);
                self.scanned = 0;
                if !std::mem::take(&mut self.is_skipping) {
                    return OutputLine::Whole(line);
                }
                continue;
            }
            self.scanned = self.buffer.len();
            if self.is_skipping || self.scanned > MAX_MESSAGE_BYTES {
                self.buffer = Vec::new();
                self.scanned = 0;
                if !std::mem::replace(&mut self.is_skipping, true) {
                    return OutputLine::TooLong;
                }
            }
            if self.is_over {
                // The last line need not have an end.
                let rest = std::mem::take(&mut self.buffer);
                self.scanned = 0;
                let is_line = !rest.is_empty() && !self.is_skipping;
                return if is_line { OutputLine::Unended(rest) } else { OutputLine::End };
            }
            self.buffer.reserve(ROOM);
            if let Ok(0) | Err(_) = self.output.read_buf(&mut self.buffer).await {
                self.is_over = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    async fn lines(written: &[u8]) -> Vec<Option<usize>> {
        let mut reader = LineReader::new(Box::new(io::Cursor::new(written.to_vec())));
        let mut lines = Vec::new();
        loop {
            match reader.next().await {
                OutputLine::Whole(line) | OutputLine::Unended(line) => lines.push(Some(line.len())),
                OutputLine::TooLong => lines.push(None),
                OutputLine::End => return lines,
            }
        }
    }

    /// Spec: Q2
    #[tokio::test]
    async fn a_line_too_long_is_skipped_whole() {
        let mut written = b"one\n".to_vec();
        written.extend(std::iter::repeat_n(b'x', 50 * 1024 * 1024));
        written.extend(b"\ntwo two\nthree");
        assert_eq!(lines(&written).await, [Some(4), None, Some(8), Some(5)]);
        assert_eq!(lines(b"").await, []);
        assert_eq!(lines(b"\n\n").await, [Some(1), Some(1)]);
    }
}
