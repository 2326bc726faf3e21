//! Takes secrets out of text before it is stored, logged or shown.
//!
//! Two kinds are found: secrets the process holds ([`Redactor::with_secret`]), wherever they stand
//! and in the usual encodings, and what looks like a secret: tokens by the formats their issuers
//! publish, private keys, credentials in headers, URLs and settings. Add your own with
//! [`Redactor::with_pattern`].
//!
//! What is found is replaced by `[redacted]`; text around it stays byte for byte, and valid JSON
//! stays valid JSON. [`StreamRedactor`] does the same for a text that comes in pieces.
//!
//! It knows no secret in an encoding that it has no name for, such as one that was encrypted or
//! compressed, and no secret below [`MIN_SECRET_CHARS`].

mod byte_lists;
mod colour;
mod context;
mod escapes;
mod forms;
mod held;
mod json;
mod layer;
mod patterns;
mod quoted;
mod ranges;
mod redactor;
mod settings;
mod stream;
mod tokens;
mod values;

pub use ranges::REDACTED;
pub use redactor::{MIN_SECRET_CHARS, Redactor};
pub use settings::is_secret_name;
pub use stream::StreamRedactor;
