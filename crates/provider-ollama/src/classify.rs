//! Failures of Ollama. Its errors are only text, so the rows match the text; without a match, the
//! status decides.
//!
//! Rows and their sources: `crates/testkit/wire/conformance.json`.

use backstop_provider_http::Class::{ContextOverflow, QuotaExhausted};
use backstop_provider_http::FailureRule;
use backstop_provider_http::When::Message;

/// The first match wins, and the status decides without one.
pub(crate) const ROWS: &[FailureRule] = &[
    // The conversation is too long: Ollama; its hosted service; the llama.cpp inside. The status was
    // 400, 413 or 500, by version.
    FailureRule::any(
        Message(&[
            "input length exceeds the context length",
            "exceeded max context length",
            "exceeds the available context size",
        ]),
        ContextOverflow,
    ),
    // The hosted service's hourly and weekly limits, which outlast any retry: “you have reached
    // your weekly usage limit”.
    FailureRule::new(429, Message(&["usage limit"]), QuotaExhausted),
];
