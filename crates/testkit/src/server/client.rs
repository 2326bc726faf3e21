use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_provider::{ModelRequest, ModelResponse, Provider, ProviderError, StreamSink};
use backstop_provider_http::Timeouts;
use layer0::failure::{Chain, sources};
use layer0::message::{Message, Transcript};
use layer0::usage::TokenUsage;

/// The key of providers under test. No error may show it.
pub const KEY: &str = "held-secret-0123456789";

/// A second secret, for providers that need more than a key. No error may show it.
pub const TOKEN: &str = "session-secret-0123456789";

/// Sink that collects streamed chunks.
#[derive(Debug, Default)]
pub struct Heard {
    text: Mutex<String>,
    thinking: Mutex<String>,
    usage: Mutex<Vec<TokenUsage>>,
    statuses: Mutex<Vec<u16>>,
}

impl Heard {
    /// Returns the text so far.
    #[must_use]
    pub fn text(&self) -> String {
        lock(&self.text).clone()
    }

    /// Returns the thinking so far.
    #[must_use]
    pub fn thinking(&self) -> String {
        lock(&self.thinking).clone()
    }

    /// Returns the usage reports so far, oldest first.
    #[must_use]
    pub fn usage(&self) -> Vec<TokenUsage> {
        lock(&self.usage).clone()
    }

    /// Returns the HTTP statuses so far, oldest first.
    #[must_use]
    pub fn statuses(&self) -> Vec<u16> {
        lock(&self.statuses).clone()
    }
}

impl StreamSink for Heard {
    fn text(&self, piece: &str) {
        lock(&self.text).push_str(piece);
    }

    fn thinking(&self, piece: &str) {
        lock(&self.thinking).push_str(piece);
    }

    fn status(&self, status: u16) {
        lock(&self.statuses).push(status);
    }

    fn usage(&self, usage: TokenUsage) {
        lock(&self.usage).push(usage);
    }
}

/// Returns a request with one user message.
#[must_use]
pub fn hello() -> ModelRequest {
    let mut messages = Transcript::default();
    messages.push(Message::user("hello"));
    ModelRequest::new(messages)
}

/// Sends a request, streamed or not.
///
/// # Errors
///
/// The errors of the provider.
pub async fn send(
    provider: &dyn Provider,
    request: &ModelRequest,
    streamed: bool,
) -> Result<ModelResponse, ProviderError> {
    if streamed { provider.stream(request).await } else { provider.complete(request).await }
}

/// Returns all visible text of an error and of its causes.
pub(crate) fn all_of(error: &ProviderError) -> String {
    let causes: String = sources(error).map(|source| format!(" {source:?} {source}")).collect();
    format!("{error:?} {}{causes}", Chain(error))
}

/// Returns whether a text shows a secret.
pub(crate) fn shows_a_secret(text: &str) -> bool {
    text.contains(KEY) || text.contains(TOKEN)
}

/// Returns long timeouts; a check may shorten some of them.
pub(crate) const fn patient() -> Timeouts {
    let long = Duration::from_secs(30);
    Timeouts::all(long)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
