//! Anthropic Messages.
//!
//! It makes one attempt: it never retries, never falls back, and never takes half a stream for an
//! answer. Read `classify.rs` for what its failures are, `request.rs` for what is sent.
//!
//! Start at [`Anthropic`].
//!
//! ```
//! use backstop_provider_anthropic::Anthropic;
//!
//! let provider = Anthropic::new("claude-sonnet-4-5").api_key("from a vault").build()?;
//! # Ok::<(), backstop_provider_http::ConfigError>(())
//! ```

mod classify;
mod messages;
mod request;
mod response;
mod stream;

pub use messages::{Anthropic, AnthropicProvider, BASE_URL, KEY_VARIABLE, Messages};
pub use request::DEFAULT_MAX_TOKENS;
