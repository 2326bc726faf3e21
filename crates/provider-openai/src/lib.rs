//! OpenAI Chat Completions, and the many endpoints compatible with it: llama.cpp, vLLM, Mistral,
//! Cohere, OpenRouter and others, by setting a base URL. OpenAI Responses, which newer models want.
//!
//! It makes one attempt: it never retries, never falls back, and never takes half a stream for an
//! answer. It keeps nothing at the provider: each request carries the whole conversation. Read
//! `classify.rs` for what the failures of both protocols are, `request.rs` and
//! `responses/request.rs` for what is sent.
//!
//! Start at [`OpenAi`], or at [`OpenAiResponses`].
//!
//! ```
//! use backstop_provider_openai::OpenAi;
//!
//! let local = OpenAi::new("qwen3").base_url("http://localhost:8080/v1").build()?;
//! # Ok::<(), backstop_provider_http::ConfigError>(())
//! ```

mod chat;
mod classify;
mod dialect;
mod own;
mod responses;
mod usage;

pub use chat::{ChatCompletions, OpenAi, OpenAiProvider};
pub use dialect::ChatDialect;
pub use own::{BASE_URL, KEY_VARIABLE};
pub use responses::{OpenAiResponses, OpenAiResponsesProvider, Responses};
