//! Ollama's own chat protocol, for models on this machine and for the hosted service.
//!
//! It makes one attempt: it never retries, never falls back, never takes half a stream for an
//! answer, and never lets the server drop the beginning of a conversation in silence. Read
//! `classify.rs` for what its failures are, `request.rs` for what is sent.
//!
//! Start at [`Ollama`].
//!
//! ```
//! use backstop_provider_ollama::Ollama;
//!
//! let local = Ollama::new("qwen3").build()?;
//! # Ok::<(), backstop_provider_http::ConfigError>(())
//! ```

mod chat;
mod classify;
mod request;
mod response;
mod stream;

pub use chat::{BASE_URL, HOSTED_URL, KEY_VARIABLE, Ollama, OllamaChat, OllamaProvider};
