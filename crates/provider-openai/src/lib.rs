//! OpenAI Chat Completions, and the many endpoints compatible with it: llama.cpp, vLLM, Mistral,
//! Cohere, OpenRouter and others, by setting a base URL.
//!
//! It makes one attempt: it never retries, never falls back, and never takes half a stream for an
//! answer. Read `classify.rs` for what its failures are, `request.rs` for what is sent.
//!
//! Start at [`OpenAi`].
//!
//! ```
//! use provider_openai::OpenAi;
//!
//! let local = OpenAi::new("qwen3").base_url("http://localhost:8080/v1").build()?;
//! # Ok::<(), provider_http::ConfigError>(())
//! ```

mod classify;
mod openai;
mod request;
mod response;
mod stream;

pub use openai::{BASE_URL, KEY_VARIABLE, OpenAi, OpenAiProvider};
