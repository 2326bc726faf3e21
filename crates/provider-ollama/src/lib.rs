//! Ollama's own chat protocol, for models on this machine and for the hosted service.
//!
//! It makes one attempt: it never retries, never falls back, never treats half a stream as an
//! answer, and never lets the server silently drop the beginning of a conversation. See
//! `classify.rs` for its failures, `request.rs` for the encoding of requests.
//!
//! Start at [`Ollama`].
//!
//! ```
//! use backstop_provider_ollama::Ollama;
//!
//! let local = Ollama::new("qwen3").build()?;
//! # Ok::<(), backstop_provider_http::ProviderConfigError>(())
//! ```

mod chat;
mod classify;
mod request;
mod response;
mod stream;

pub use chat::{BASE_URL, HOSTED_URL, KEY_VARIABLE, Ollama, OllamaChat, OllamaProvider};
