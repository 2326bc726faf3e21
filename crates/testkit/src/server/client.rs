use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_provider::{ModelRequest, ModelResponse, Provider, ProviderError, StreamSink};
use backstop_provider_http::Timeouts;
use layer0::failure::{Chain, sources};
use layer0::message::{Message, Transcript};
use layer0::usage::TokenUsage;

/// The key that providers under test are given. No error may show it.
pub const KEY: &str = "held-secret-0123456789";

/// A second secret, for providers that need more than a key. No error may show it.
pub const TOKEN: &str = "session-secret-0123456789";

/// Collects what is streamed.
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

    /// Returns what was said of tokens so far, oldest first.
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

/// Makes a request in which a user says hello.
#[must_use]
pub fn hello() -> ModelRequest {
    let mut messages = Transcript::default();
    messages.push(Message::user("hello"));
    ModelRequest::new(messages)
}

/// Asks in one of the two ways a provider can be asked.
///
/// # Errors
///
/// Those of the provider.
pub async fn send(
    provider: &dyn Provider,
    request: &ModelRequest,
    streamed: bool,
) -> Result<ModelResponse, ProviderError> {
    if streamed { provider.stream(request).await } else { provider.complete(request).await }
}

/// Returns all that can be seen of an error and of its causes.
pub(crate) fn all_of(error: &ProviderError) -> String {
    let causes: String = sources(error).map(|source| format!(" {source:?} {source}")).collect();
    format!("{error:?} {}{causes}", Chain(error))
}

/// Does a text show what no error may?
pub(crate) fn shows_a_secret(text: &str) -> bool {
    text.contains(KEY) || text.contains(TOKEN)
}

/// Timeouts that are far away, but for those a check shortens.
pub(crate) const fn patient() -> Timeouts {
    let long = Duration::from_secs(30);
    Timeouts::all(long)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
