//! No answer panics the Gemini adapter, and what an error quotes of one is a bounded line.
#![no_main]

use std::sync::LazyLock;

use backstop_provider_gemini::{Gemini, GeminiProvider};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

static READER: LazyLock<(Runtime, GeminiProvider)> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    (runtime, Gemini::new("model-1").base_url("http://127.0.0.1:9").build().unwrap())
});

// The first byte chooses the content type, the rest is the body.
fuzz_target!(|bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else { return };
    let content_type = if choice % 2 == 0 { "text/event-stream" } else { "application/json" };
    let (runtime, provider) = &*READER;
    if let Err(error) = runtime.block_on(provider.read(content_type, body)) {
        let message = error.to_string();
        assert!(message.chars().count() < 600, "{message}");
        assert!(!message.chars().any(char::is_control), "{message:?}");
    }
});
