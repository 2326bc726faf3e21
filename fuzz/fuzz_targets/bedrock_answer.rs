//! No answer panics the Bedrock adapter, and what an error quotes of one is a bounded line.
#![no_main]

use std::sync::LazyLock;

use backstop_provider_bedrock::{Bedrock, BedrockProvider};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

static READER: LazyLock<(Runtime, BedrockProvider)> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    (runtime, Bedrock::new("model-1").base_url("http://127.0.0.1:9").build().unwrap())
});

// The first byte chooses what the rest is: JSON, a stream as it is, or frames of a stream, each line
// one, the headers before a tab and the payload behind it.
fuzz_target!(|bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else { return };
    let frames = "application/vnd.amazon.eventstream";
    let (content_type, body) = match choice % 3 {
        0 => ("application/json", body.to_vec()),
        1 => (frames, body.to_vec()),
        _ => (frames, body.split(|byte| *byte == b'\n').flat_map(frame).collect()),
    };
    let (runtime, provider) = &*READER;
    if let Err(error) = runtime.block_on(provider.read(content_type, body)) {
        let message = error.to_string();
        assert!(message.chars().count() < 600, "{message}");
        assert!(!message.chars().any(char::is_control), "{message:?}");
    }
});

/// Returns a frame whose lengths and checksums are right: a fuzzer would not find them.
fn frame(line: &[u8]) -> Vec<u8> {
    let mut parts = line.splitn(2, |byte| *byte == b'\t');
    let (headers, payload) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    let mut frame = Vec::new();
    frame.extend(length(12 + headers.len() + payload.len() + 4));
    frame.extend(length(headers.len()));
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame.extend(headers);
    frame.extend(payload);
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame
}
