//! Amazon Bedrock Converse.
//!
//! It makes one attempt: it never retries, never falls back, and never treats half a stream as an
//! answer. No secret it holds is printed. See `classify.rs` for its failures, `request.rs` for the
//! encoding of requests, `sign.rs` for signatures, `frames.rs` for the frames of a stream.
//!
//! Start at [`Bedrock`].
//!
//! ```
//! use backstop_provider_bedrock::{AwsCredentials, Bedrock};
//!
//! let credentials = AwsCredentials::new("an access key id", "from a vault");
//! let provider = Bedrock::new("anthropic.claude-sonnet-4-5-20250929-v1:0")
//!     .with(|it| it.region("eu-central-1").credentials(credentials))
//!     .build()?;
//! # Ok::<(), backstop_provider_http::ProviderConfigError>(())
//! ```

mod classify;
mod converse;
mod frames;
mod request;
mod response;
mod served;
mod sign;
mod stream;

pub use converse::{BEARER_VARIABLE, Bedrock, BedrockProvider, Converse, REGION_VARIABLES};
pub use sign::{ACCESS_KEY_VARIABLE, AwsCredentials, SECRET_KEY_VARIABLE, SESSION_TOKEN_VARIABLE};
