//! What Ollama's failures are. Its errors are a text and nothing else, so a row looks at the text;
//! where no row does, the status decides.
//!
//! Rows and their sources: `crates/testkit/wire/conformance.json`.

use backstop_provider_http::Class::{ContextOverflow, QuotaExhausted};
use backstop_provider_http::Row;
use backstop_provider_http::When::Message;

/// The first row that matches wins; the rest is decided by status.
pub(crate) const ROWS: &[Row] = &[
    // The conversation is too long: Ollama; its hosted service; the llama.cpp inside. The status was
    // 400, 413 or 500, by version.
    Row::any(
        Message(&[
            "input length exceeds the context length",
            "exceeded max context length",
            "exceeds the available context size",
        ]),
        ContextOverflow,
    ),
    // The hosted service's limits of hours and weeks, which no wait between attempts helps against:
    // “you have reached your weekly usage limit”.
    Row::new(429, Message(&["usage limit"]), QuotaExhausted),
];
