//! Failures of Bedrock.
//!
//! Rows and their sources: `crates/testkit/wire/conformance.json`.

use backstop_provider_http::Class::{
    AuthFailed, ContextOverflow, InvalidRequest, NotFound, QuotaExhausted, RateLimited, Timeout,
    Transient,
};
use backstop_provider_http::Row;
use backstop_provider_http::When::{Message, Type};

/// The first match wins, and the status decides without one.
///
/// The type of a failure is in the header `x-amzn-errortype`, in `__type` of the body, or, in a
/// stream, in `:exception-type`, where it begins in lower case.
pub(crate) const ROWS: &[Row] = &[
    // A `ValidationException`, like many other failures.
    Row::new(
        400,
        Message(&["input is too long", "input tokens exceeded", "prompt is too long"]),
        ContextOverflow,
    ),
    Row::new(400, Type(&["ServiceQuotaExceededException"]), QuotaExhausted),
    // Official SDKs do not retry a conflict.
    Row::new(400, Type(&["ConflictException", "ValidationException"]), InvalidRequest),
    // The account's agreement with the model's maker is being created.
    Row::new(403, Type(&["MPAgreementBeingCreated"]), Transient),
    // An upstream model that failed or was slow, which the status alone does not show.
    Row::new(408, Type(&["ModelTimeoutException"]), Timeout),
    Row::new(424, Type(&["ModelErrorException", "ModelStreamErrorException"]), Transient),
    // A 429 that is not a rate limit comes before those that are.
    Row::new(429, Type(&["ModelNotReadyException"]), Transient),
    // These rows matter without a status: in an exception of a stream.
    Row::new(403, Type(&["AccessDeniedException"]), AuthFailed),
    Row::new(404, Type(&["ResourceNotFoundException"]), NotFound),
    Row::new(429, Type(&["ThrottlingException"]), RateLimited),
    Row::new(500, Type(&["InternalServerException"]), Transient),
    Row::new(503, Type(&["ServiceUnavailableException"]), Transient),
];
