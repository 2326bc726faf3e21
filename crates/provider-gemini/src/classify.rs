//! Failures of Gemini.
//!
//! Rows and their sources: `crates/testkit/wire/conformance.json`.

use backstop_provider_http::Class::{
    AuthFailed, Cancelled, ContentBlocked, ContextOverflow, InvalidRequest, NotFound,
    QuotaExhausted, RateLimited, Timeout, Transient,
};
use backstop_provider_http::FailureRule;
use backstop_provider_http::When::{All, Code, Has, Message, Quota, Type};

/// The first match wins, and the status decides without one.
pub(crate) const ROWS: &[FailureRule] = &[
    // A blocked prompt gets a response without an answer.
    FailureRule::new(200, Has(BLOCK_REASON), ContentBlocked),
    // Many failures are a 400 of status `INVALID_ARGUMENT`.
    FailureRule::new(400, Code(&["API_KEY_INVALID"]), AuthFailed),
    FailureRule::new(
        400,
        Message(&["input token count", "number of tokens allowed"]),
        ContextOverflow,
    ),
    FailureRule::new(
        400,
        All(&[Type(&["FAILED_PRECONDITION"]), Message(&["billing"])]),
        QuotaExhausted,
    ),
    // Limits that are used up for good, or for the day, have the status of those that pass in seconds.
    FailureRule::new(402, Code(&["402"]), QuotaExhausted),
    FailureRule::new(429, Quota(&["PerDay"]), QuotaExhausted),
    // These rows matter without a status: inside a 200.
    FailureRule::new(
        400,
        Type(&["FAILED_PRECONDITION", "INVALID_ARGUMENT", "OUT_OF_RANGE"]),
        InvalidRequest,
    ),
    FailureRule::new(401, Type(&["UNAUTHENTICATED"]), AuthFailed),
    FailureRule::new(403, Type(&["PERMISSION_DENIED"]), AuthFailed),
    FailureRule::new(404, Type(&["NOT_FOUND"]), NotFound),
    FailureRule::new(409, Type(&["ABORTED"]), Transient),
    FailureRule::new(429, Type(&["RESOURCE_EXHAUSTED"]), RateLimited),
    FailureRule::new(499, Type(&["CANCELLED"]), Cancelled),
    FailureRule::new(500, Type(&["INTERNAL", "UNKNOWN"]), Transient),
    FailureRule::new(503, Type(&["UNAVAILABLE"]), Transient),
    FailureRule::new(504, Type(&["DEADLINE_EXCEEDED"]), Timeout),
];

/// The JSON pointer to the reason why the prompt was blocked.
const BLOCK_REASON: &str = "/promptFeedback/blockReason";
