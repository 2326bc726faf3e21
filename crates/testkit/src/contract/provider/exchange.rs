//! Requests and answers of the trials.

use std::sync::Arc;
use std::time::Duration;

use backstop_provider::{
    ModelResponse, ProviderError, ScriptedAnswer, ScriptedToolCall, StreamSink,
};
use backstop_provider_http::Timeouts;
use layer0::usage::TokenUsage;
use serde_json::{Value, json};

use crate::server::{Heard, Loopback, Reply, hello, patient, send};
use crate::strict::{Dialect, Said, check_body};
use crate::wire::{Cannot, Wire};

/// The timeouts of a call that hangs. All others are long: a busy machine is not a defect.
pub(super) const SHORT: Timeouts = {
    let second = Duration::from_secs(1);
    patient().first_byte(second).idle(second)
};

pub(super) type Result = std::result::Result<ModelResponse, ProviderError>;

/// Starts a server that gives these replies to requests that the endpoint accepts.
pub(super) fn serve_replies(wire: &Wire, replies: impl IntoIterator<Item = Reply>) -> Loopback {
    add_judge(wire, Loopback::replying(replies))
}

/// Makes a server refuse the requests that the endpoint of the wire refuses.
pub(super) fn add_judge(wire: &Wire, server: Loopback) -> Loopback {
    let Some(name) = wire.judge else { return server };
    let dialect = Dialect::from_name(name);
    let dialect = dialect.unwrap_or_else(|| panic!("`{name}` is the name of no strict endpoint"));
    server.judged_by(move |request| {
        let refusal = check_body(dialect, &Said::default(), &request.bytes).err()?;
        Some(Reply::json(refusal.status, &refusal.body))
    })
}

pub(super) async fn ask(wire: &Wire, reply: Reply, streamed: bool) -> (Result, Arc<Heard>) {
    let server = serve_replies(wire, [reply]);
    ask_at(wire, &server.url(), streamed, patient()).await
}

pub(super) async fn ask_at(
    wire: &Wire,
    url: &str,
    streamed: bool,
    timeouts: Timeouts,
) -> (Result, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let sink = Arc::clone(&heard) as Arc<dyn StreamSink>;
    let request = hello().sink(sink);
    let provider = (wire.provider)(url, timeouts);
    (send(&*provider, &request, streamed).await, heard)
}

pub(super) fn answer(wire: &Wire) -> ScriptedAnswer {
    ScriptedAnswer::saying("grüße 👍 one two three").usage(billed(wire))
}

pub(super) fn billed(wire: &Wire) -> TokenUsage {
    let cached_tokens = if wire.can(Cannot::CountCached) { 3 } else { 0 };
    let cache_write_tokens = if wire.can(Cannot::CountCacheWrites) { 2 } else { 0 };
    TokenUsage::new(7, 5).cached_tokens(cached_tokens).cache_write_tokens(cache_write_tokens)
}

pub(super) fn calls() -> ScriptedAnswer {
    let call = |id: &str, city: &str| calling(id, json!({ "city": city, "days": [1, 2] }));
    ScriptedAnswer::default().tool_calls([call("call_1", "Zürich"), call("call_2", "Oslo")])
}

pub(super) fn calling(id: &str, arguments: Value) -> ScriptedToolCall {
    ScriptedToolCall::new(id, "weather", arguments)
}
