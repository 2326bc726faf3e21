//! OpenAI Chat Completions, and the many endpoints compatible with it, by setting a base URL:
//! llama.cpp, vLLM, Mistral, Cohere, OpenRouter and others. OpenAI Responses, which newer models
//! require.
//!
//! It makes one attempt: it never retries, never falls back, and never treats half a stream as an
//! answer. It stores nothing at the provider: each request carries the whole conversation. See
//! `classify.rs` for the failures of both protocols, `request.rs` and `responses/request.rs` for
//! the encoding of requests.
//!
//! Start at [`OpenAi`], or at [`OpenAiResponses`].
//!
//! ```
//! use backstop_provider_openai::OpenAi;
//!
//! let local = OpenAi::new("qwen3").base_url("http://localhost:8080/v1").build()?;
//! # Ok::<(), backstop_provider_http::ProviderConfigError>(())
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
