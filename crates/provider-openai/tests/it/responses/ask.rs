//! What the tests of this protocol share.

use provider::{ModelResponse, ProviderError};
use provider_openai::{OpenAiResponses, OpenAiResponsesProvider};
use testkit::{Loopback, Reply};

use crate::it::ask::{KEY, hello, send};

pub(super) fn to(base_url: &str) -> OpenAiResponses {
    provider_http::deny_real_requests();
    OpenAiResponses::new("model-1").base_url(base_url).api_key(KEY)
}

pub(super) fn provider(base_url: &str) -> OpenAiResponsesProvider {
    to(base_url).build().unwrap()
}

/// Asks a server that gives this reply once.
pub(super) async fn ask(reply: Reply, streamed: bool) -> Result<ModelResponse, ProviderError> {
    let server = Loopback::replying([reply]);
    send(&provider(&server.url()), &hello(), streamed).await
}
