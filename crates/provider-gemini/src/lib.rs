//! Google Gemini, by `generateContent` and `streamGenerateContent`.
//!
//! It makes one attempt: it never retries, never falls back, and never treats half a stream as an
//! answer. See `classify.rs` for its failures, `request.rs` for the encoding of requests.
//!
//! Start at [`Gemini`].
//!
//! ```
//! use backstop_provider_gemini::Gemini;
//!
//! let provider = Gemini::new("gemini-2.5-flash").api_key("from a vault").build()?;
//! # Ok::<(), backstop_provider_http::ProviderConfigError>(())
//! ```

mod classify;
mod generate;
mod partial;
mod request;
mod response;
mod stream;

pub use generate::{BASE_URL, Gemini, GeminiProvider, GenerateContent, KEY_VARIABLE};
