//! Shared parts of the HTTP provider adapters: one provider and its builder, one client, timeouts
//! by phase, server-sent events, retry delays, and the table that classifies failures.
//!
//! An adapter is a [`Protocol`]: the [`FailureRule`]s of its failures, the request body, and the decoding
//! of responses, whole or from the frames of a stream. [`HttpProvider`] calls an endpoint that
//! speaks it.
//!
//! It never retries, never follows a redirect and never waits longer than its [`Timeouts`] allow.
//! No byte from outside can make it panic, and no key it holds can be printed: text from a provider
//! is redacted, put on one line and bounded before it enters an error.
//!
//! Start at [`Protocol`], which has an example, then [`HttpProviderBuilder`] and [`classify`].

#![cfg_attr(docsrs, feature(doc_cfg))]

mod accepts;
mod answer;
mod arguments;
mod builder;
mod calls;
mod class;
mod claude;
pub mod classify;
mod coding;
mod config_error;
mod connection;
mod decode;
mod draft;
mod endpoint;
mod events;
mod extra;
mod fitted;
mod framing;
mod header;
mod hint;
mod key;
pub mod lenient;
mod limits;
mod malformed;
pub mod phrases;
mod protocol;
mod http_provider;
mod joined;
mod json_scan;
mod rate;
mod reply;
mod error_body;
mod schema;
mod sign;
mod span;
mod state;
mod stop_words;
mod timeouts;
mod values;
mod wording;

pub use accepts::{Accepts, CallIds, MessageOrder};
pub use arguments::{parse_arguments, sendable_arguments};
pub use builder::HttpProviderBuilder;
pub use calls::CallDraft;
pub use class::Class;
pub use classify::{FailureRule, When};
pub use claude::claude_form;
pub use config_error::ProviderConfigError;
pub use draft::Draft;
pub use endpoint::Endpoint;
pub use error_body::ErrorBody;
pub use events::{Events, SseEvent};
pub use framing::{FrameError, Framing};
pub use http_provider::HttpProvider;
pub use key::ApiKey;
pub use limits::{MAX_ANSWER_BYTES, MAX_ANSWER_ITEMS, MAX_STREAM_BYTES};
pub use protocol::{Protocol, Stream};
pub use reply::Reply;
pub use schema::Subset;
pub use sign::{Sign, Unsigned};
pub use state::{AnswerPiece, keep_field, kept_field, kept_id, pieces};
pub use timeouts::Timeouts;
pub use values::JsonSplitter;
