//! What Bedrock's failures are.
//!
//! Rows and their sources: `crates/testkit/wire/conformance.json`.

use backstop_provider_http::Class::{
    AuthFailed, ContextOverflow, InvalidRequest, NotFound, QuotaExhausted, RateLimited, Timeout,
    Transient,
};
use backstop_provider_http::Row;
use backstop_provider_http::When::{Message, Type};

/// The first row that matches wins; the rest is decided by status.
///
/// A type stands in the header `x-amzn-errortype`, in `__type` of the body, or, in a stream, in
/// `:exception-type`, where it begins in lower case.
pub(crate) const ROWS: &[Row] = &[
    // A `ValidationException`, as many other things are.
    Row::new(
        400,
        Message(&["input is too long", "input tokens exceeded", "prompt is too long"]),
        ContextOverflow,
    ),
    Row::new(400, Type(&["ServiceQuotaExceededException"]), QuotaExhausted),
    // Official SDKs do not try a conflict again.
    Row::new(400, Type(&["ConflictException", "ValidationException"]), InvalidRequest),
    // The account's agreement with the model's maker is on its way.
    Row::new(403, Type(&["MPAgreementBeingCreated"]), Transient),
    // An upstream model that failed or was slow, which no status says.
    Row::new(408, Type(&["ModelTimeoutException"]), Timeout),
    Row::new(424, Type(&["ModelErrorException", "ModelStreamErrorException"]), Transient),
    // A 429 that is no rate limit comes before those that are.
    Row::new(429, Type(&["ModelNotReadyException"]), Transient),
    // The rest matters where no status says so: in an exception of a stream.
    Row::new(403, Type(&["AccessDeniedException"]), AuthFailed),
    Row::new(404, Type(&["ResourceNotFoundException"]), NotFound),
    Row::new(429, Type(&["ThrottlingException"]), RateLimited),
    Row::new(500, Type(&["InternalServerException"]), Transient),
    Row::new(503, Type(&["ServiceUnavailableException"]), Transient),
];
