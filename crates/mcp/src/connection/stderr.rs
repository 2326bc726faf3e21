//! The end of a program's standard error.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backstop_redact::{Redactor, StreamRedactor};
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

use crate::spawn::Output;

/// Maximum size of the kept text, in bytes.
const MAX_BYTES: usize = 8 * 1024;
/// Maximum length of the text in a message, in characters.
const SHOWN_CHARS: usize = 300;

/// The last 8 KiB of standard error, without secrets.
#[derive(Debug)]
pub(crate) struct StderrTail {
    redactor: Redactor,
    tail: Mutex<Tail>,
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct Tail {
    bytes: VecDeque<u8>,
    is_cut: bool,
}

impl StderrTail {
    pub(super) fn new(redactor: Redactor) -> Arc<Self> {
        let ended = CancellationToken::new();
        Arc::new(Self { redactor, tail: Mutex::default(), ended })
    }

    /// Reads standard error to its end.
    pub(super) async fn read(self: Arc<Self>, mut output: Output) {
        let _ended = self.ended.clone().drop_guard();
        // Secrets are redacted before truncation can cut them.
        let mut stream = self.redactor.stream();
        let mut chunk = vec![0; 4 * 1024];
        // The beginning of a character.
        let mut open = Vec::new();
        while let Ok(read @ 1..) = output.read(&mut chunk).await {
            open.extend_from_slice(&chunk[..read]);
            let whole = whole_characters(&open);
            self.push(&mut stream, &open[..whole]);
            open.drain(..whole);
        }
        self.push(&mut stream, &open);
        let rest = stream.finish();
        self.keep(&rest);
    }

    /// Completes at the end of standard error.
    pub(super) async fn wait_for_end(&self) {
        self.ended.cancelled().await;
    }

    /// Returns the kept text, without secrets.
    pub(crate) fn text(&self) -> String {
        let tail = self.tail();
        let bytes: Vec<u8> = tail.bytes.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        // A partial line may hold a part of a secret that cannot be recognised without its beginning.
        let whole = match (tail.is_cut, text.split_once('\n')) {
            (true, Some((_, whole))) => whole,
            (true, None) => "",
            (false, _) => &text,
        };
        self.redactor.redact(whole).trim().to_owned()
    }

    /// Appends the end of the text to a message.
    pub(crate) fn after(&self, what: &str) -> String {
        let said = self.text();
        let chars = said.chars().count();
        let shown: String = said.chars().skip(chars.saturating_sub(SHOWN_CHARS)).collect();
        let lines: Vec<&str> =
            shown.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match lines.is_empty() {
            true => what.to_owned(),
            false => format!("{what}; it wrote: {}", lines.join(" / ")),
        }
    }

    fn push(&self, stream: &mut StreamRedactor, bytes: &[u8]) {
        let shown = stream.push(&String::from_utf8_lossy(bytes));
        self.keep(&shown);
    }

    fn keep(&self, text: &str) {
        let mut tail = self.tail();
        tail.bytes.extend(text.as_bytes());
        let above = tail.bytes.len().saturating_sub(MAX_BYTES);
        tail.is_cut |= above > 0;
        tail.bytes.drain(..above);
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of bytes that are complete characters.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(redactor: Redactor, written: &str) -> String {
        let stderr = StderrTail::new(redactor);
        let output = std::io::Cursor::new(written.as_bytes().to_vec());
        Arc::clone(&stderr).read(Box::new(output)).await;
        stderr.wait_for_end().await;
        stderr.text()
    }

    /// Spec: Q7
    #[tokio::test]
    async fn the_last_is_kept_without_secrets() {
        let redactor = || Redactor::new().with_secret("hunter2-hunter2");
        let said = text(redactor(), "the key is hunter2-hunter2, \u{fc}\n").await;
        assert_eq!(said, "the key is [redacted], \u{fc}");
        let long = "hunter2-hunter2 is no word\n".repeat(2_000);
        let said = text(redactor(), &long).await;
        assert!(said.len() <= MAX_BYTES && said.len() > MAX_BYTES / 2);
        assert!(said.lines().all(|line| line == "[redacted] is no word"), "{said}");
    }
}
