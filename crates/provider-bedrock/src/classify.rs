//! Failures of Bedrock.
//!
//! Rows and their sources: `crates/testkit/wire/conformance.json`.

use backstop_provider_http::Class::{
    AuthFailed, ContextOverflow, InvalidRequest, NotFound, QuotaExhausted, RateLimited, Timeout,
    Transient,
};
use backstop_provider_http::FailureRule;
use backstop_provider_http::When::{Message, Type};

/// The first match wins, and the status decides without one.
///
/// The type of a failure is in the header `x-amzn-errortype`, in `__type` of the body, or, in a
/// stream, in `:exception-type`, where it begins in lower case.
pub(crate) const ROWS: &[FailureRule] = &[
    // A `ValidationException`, like many other failures.
    FailureRule::new(
        400,
        Message(&["input is too long", "input tokens exceeded", "prompt is too long"]),
        ContextOverflow,
    ),
    FailureRule::new(400, Type(&["ServiceQuotaExceededException"]), QuotaExhausted),
    // Official SDKs do not retry a conflict.
    FailureRule::new(400, Type(&["ConflictException", "ValidationException"]), InvalidRequest),
    // The account's agreement with the model's maker is being created.
    FailureRule::new(403, Type(&["MPAgreementBeingCreated"]), Transient),
    // An upstream model that failed or was slow, which the status alone does not show.
    FailureRule::new(408, Type(&["ModelTimeoutException"]), Timeout),
    FailureRule::new(424, Type(&["ModelErrorException", "ModelStreamErrorException"]), Transient),
    // A 429 that is not a rate limit comes before those that are.
    FailureRule::new(429, Type(&["ModelNotReadyException"]), Transient),
    // These rows matter without a status: in an exception of a stream.
    FailureRule::new(403, Type(&["AccessDeniedException"]), AuthFailed),
    FailureRule::new(404, Type(&["ResourceNotFoundException"]), NotFound),
    FailureRule::new(429, Type(&["ThrottlingException"]), RateLimited),
    FailureRule::new(500, Type(&["InternalServerException"]), Transient),
    FailureRule::new(503, Type(&["ServiceUnavailableException"]), Transient),
];
