//! Redaction of secrets in text before it is stored, logged or shown.
//!
//! Two kinds are found: secrets of the process ([`Redactor::with_secret`]), anywhere and in the
//! usual encodings, and text in the form of a secret: tokens by the formats their issuers publish,
//! private keys, credentials in headers, URLs and settings. Add your own with
//! [`Redactor::with_pattern`]. A process that obtains secrets while it runs has [`SharedSecrets`].
//!
//! Secrets are replaced by `[redacted]`; text around them stays byte for byte, and valid JSON stays
//! valid JSON, unless a secret of the process spans several of its strings or numbers.
//! [`StreamRedactor`] does the same for a text that arrives in pieces.
//!
//! It does not find a secret that is printed byte by byte as numbers, in a list (`[104, 101, …]`) or a
//! dump; one that was encrypted, compressed or encoded in another way than [`Redactor`] lists; and
//! none below [`MIN_SECRET_CHARS`].

mod colour;
mod escapes;
mod forms;
mod held;
mod json;
mod json_tokens;
mod layer;
mod patterns;
mod quoted;
mod ranges;
mod redactor;
mod settings;
mod shared;
mod steps;
mod stream;
mod tokens;
mod values;

pub use held::MIN_SECRET_CHARS;
pub use ranges::REDACTED;
pub use redactor::Redactor;
pub use settings::is_secret_name;
pub use shared::SharedSecrets;
pub use stream::StreamRedactor;
