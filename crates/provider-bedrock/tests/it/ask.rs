//! What the tests share.

use std::sync::Mutex;
use std::time::Duration;

use layer0::message::{Message, Transcript};
use layer0::usage::TokenUsage;
use provider::{ModelRequest, ModelResponse, Provider, ProviderError, StreamSink};
use provider_bedrock::{AwsCredentials, Bedrock, BedrockProvider};
use provider_http::Timeouts;
use testkit::{Loopback, Reply};

pub(super) const KEY: &str = "held-secret-0123456789";
pub(super) const TOKEN: &str = "session-secret-0123456789";

/// Records what is streamed.
#[derive(Default)]
pub(super) struct Listener {
    pub(super) text: Mutex<String>,
    pub(super) thinking: Mutex<String>,
    pub(super) usage: Mutex<Vec<TokenUsage>>,
}

impl StreamSink for Listener {
    fn text(&self, piece: &str) {
        self.text.lock().unwrap().push_str(piece);
    }

    fn thinking(&self, piece: &str) {
        self.thinking.lock().unwrap().push_str(piece);
    }

    fn usage(&self, usage: TokenUsage) {
        self.usage.lock().unwrap().push(usage);
    }
}

pub(super) fn to(base_url: &str) -> Bedrock {
    provider_http::deny_real_requests();
    Bedrock::new("model-1:0").region("eu-central-1").base_url(base_url).credentials(credentials())
}

pub(super) fn credentials() -> AwsCredentials {
    AwsCredentials::new("AKIDEXAMPLE", KEY).session_token(TOKEN)
}

pub(super) fn provider(base_url: &str) -> BedrockProvider {
    to(base_url).build().unwrap()
}

pub(super) fn hello() -> ModelRequest {
    let mut messages = Transcript::default();
    messages.push(Message::user("hello"));
    ModelRequest::new(messages)
}

/// Asks a server that gives this reply once.
pub(super) async fn ask(reply: Reply, streamed: bool) -> Result<ModelResponse, ProviderError> {
    let server = Loopback::replying([reply]);
    send(&provider(&server.url()), &hello(), streamed).await
}

pub(super) async fn send(
    provider: &dyn Provider,
    request: &ModelRequest,
    streamed: bool,
) -> Result<ModelResponse, ProviderError> {
    if streamed { provider.stream(request).await } else { provider.complete(request).await }
}

/// Timeouts that are far away, but for those a test shortens.
pub(super) fn patient() -> Timeouts {
    let long = Duration::from_secs(30);
    Timeouts { connect: long, first_byte: long, idle: long, attempt: long }
}
