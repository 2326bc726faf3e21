//! Failures of Gemini.
//!
//! Rows and their sources: `crates/testkit/wire/conformance.json`.

use backstop_provider_http::Class::{
    AuthFailed, Cancelled, ContentBlocked, ContextOverflow, InvalidRequest, NotFound,
    QuotaExhausted, RateLimited, Timeout, Transient,
};
use backstop_provider_http::Row;
use backstop_provider_http::When::{All, Code, Has, Message, Quota, Type};

/// The first match wins, and the status decides without one.
pub(crate) const ROWS: &[Row] = &[
    // A blocked prompt gets a response without an answer.
    Row::new(200, Has(BLOCK_REASON), ContentBlocked),
    // Many failures are a 400 of status `INVALID_ARGUMENT`.
    Row::new(400, Code(&["API_KEY_INVALID"]), AuthFailed),
    Row::new(400, Message(&["input token count", "number of tokens allowed"]), ContextOverflow),
    Row::new(400, All(&[Type(&["FAILED_PRECONDITION"]), Message(&["billing"])]), QuotaExhausted),
    // Limits that are used up for good, or for the day, have the status of those that pass in seconds.
    Row::new(402, Code(&["402"]), QuotaExhausted),
    Row::new(429, Quota(&["PerDay"]), QuotaExhausted),
    // These rows matter without a status: inside a 200.
    Row::new(
        400,
        Type(&["FAILED_PRECONDITION", "INVALID_ARGUMENT", "OUT_OF_RANGE"]),
        InvalidRequest,
    ),
    Row::new(401, Type(&["UNAUTHENTICATED"]), AuthFailed),
    Row::new(403, Type(&["PERMISSION_DENIED"]), AuthFailed),
    Row::new(404, Type(&["NOT_FOUND"]), NotFound),
    Row::new(409, Type(&["ABORTED"]), Transient),
    Row::new(429, Type(&["RESOURCE_EXHAUSTED"]), RateLimited),
    Row::new(499, Type(&["CANCELLED"]), Cancelled),
    Row::new(500, Type(&["INTERNAL", "UNKNOWN"]), Transient),
    Row::new(503, Type(&["UNAVAILABLE"]), Transient),
    Row::new(504, Type(&["DEADLINE_EXCEEDED"]), Timeout),
];

/// The JSON pointer to the reason why the prompt was blocked.
const BLOCK_REASON: &str = "/promptFeedback/blockReason";
