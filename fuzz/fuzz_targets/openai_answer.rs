//! No answer panics the OpenAI adapter, in either protocol, and what an error quotes of one is a bounded line.
#![no_main]

use std::sync::LazyLock;

use backstop_provider_openai::{OpenAi, OpenAiProvider, OpenAiResponses, OpenAiResponsesProvider};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

type Reader = (Runtime, OpenAiProvider, OpenAiResponsesProvider);

static READER: LazyLock<Reader> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let url = "http://127.0.0.1:9";
    let chat = OpenAi::new("model-1").base_url(url).build().unwrap();
    let responses = OpenAiResponses::new("model-1").base_url(url).build().unwrap();
    (runtime, chat, responses)
});

// The first byte chooses protocol and content type, the rest is the body.
fuzz_target!(|bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else { return };
    let content_type = if choice % 2 == 0 { "text/event-stream" } else { "application/json" };
    let (runtime, chat, responses) = &*READER;
    let result = if choice & 2 == 0 {
        runtime.block_on(chat.read(content_type, body))
    } else {
        runtime.block_on(responses.read(content_type, body))
    };
    if let Err(error) = result {
        let message = error.to_string();
        assert!(message.chars().count() < 600, "{message}");
        assert!(!message.chars().any(char::is_control), "{message:?}");
    }
});
