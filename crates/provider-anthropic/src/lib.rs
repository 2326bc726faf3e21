//! Anthropic Messages.
//!
//! It makes one attempt: it never retries, never falls back, and never treats half a stream as an
//! answer. See `classify.rs` for its failures, `request.rs` for the encoding of requests.
//!
//! Start at [`Anthropic`].
//!
//! ```
//! use backstop_provider_anthropic::Anthropic;
//!
//! let provider = Anthropic::new("claude-sonnet-4-5").api_key("from a vault").build()?;
//! # Ok::<(), backstop_provider_http::ProviderConfigError>(())
//! ```

mod classify;
mod messages;
mod request;
mod response;
mod stream;

pub use messages::{Anthropic, AnthropicProvider, BASE_URL, KEY_VARIABLE, Messages};
pub use request::DEFAULT_MAX_TOKENS;
