//! Failures of Anthropic.
//!
//! Rows and their sources: `crates/testkit/wire/conformance.json`.

use backstop_provider_http::Class::{
    AuthFailed, ContentBlocked, ContextOverflow, InvalidRequest, NotFound, QuotaExhausted,
    RateLimited, Timeout, Transient,
};
use backstop_provider_http::FailureRule;
use backstop_provider_http::When::{Code, Message, MessageStart, Type};

/// The first match wins, and the status decides without one.
pub(crate) const ROWS: &[FailureRule] = &[
    // Many failures are a 400 of type `invalid_request_error`.
    FailureRule::any(Message(&["prompt is too long", "exceed context limit"]), ContextOverflow),
    FailureRule::new(400, Message(&["credit balance is too low"]), QuotaExhausted),
    FailureRule::new(
        400,
        MessageStart(&[
            "You have reached your specified API usage limits",
            "You have reached your specified workspace API usage limits",
        ]),
        QuotaExhausted,
    ),
    FailureRule::new(400, Message(&["blocked by content filtering policy"]), ContentBlocked),
    FailureRule::new(400, Code(&["organization_on_hold"]), AuthFailed),
    FailureRule::new(400, Code(&["request_body_timeout"]), Timeout),
    // A 429 that does not pass comes before those that do.
    FailureRule::new(
        429,
        Code(&["enforced_spend_limit_reached", "contract_spend_limit_reached"]),
        QuotaExhausted,
    ),
    FailureRule::new(429, Code(&["ramp_limit_exceeded"]), RateLimited),
    FailureRule::new(503, Code(&["cmek_context_unavailable", "cmek_key_unreachable"]), Transient),
    FailureRule::new(529, Code(&["compaction_unavailable"]), Transient),
    // These rows matter without a status: in an `error` event.
    FailureRule::new(400, Type(&["invalid_request_error"]), InvalidRequest),
    FailureRule::new(401, Type(&["authentication_error"]), AuthFailed),
    FailureRule::new(402, Type(&["billing_error"]), QuotaExhausted),
    FailureRule::new(403, Type(&["permission_error"]), AuthFailed),
    FailureRule::new(404, Type(&["not_found_error"]), NotFound),
    FailureRule::new(409, Type(&["conflict_error"]), Transient),
    FailureRule::new(413, Type(&["request_too_large"]), InvalidRequest),
    FailureRule::new(429, Type(&["rate_limit_error"]), RateLimited),
    FailureRule::new(500, Type(&["api_error"]), Transient),
    FailureRule::new(504, Type(&["timeout_error"]), Timeout),
    FailureRule::new(529, Type(&["overloaded_error"]), Transient),
];
