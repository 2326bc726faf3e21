//! Failures of OpenAI, and of endpoints that speak its protocol.
//!
//! Rows and their sources: `crates/testkit/wire/conformance.json`.

use backstop_provider_http::Class::{
    AuthFailed, ContentBlocked, ContextOverflow, InvalidRequest, Malformed, NotFound,
    QuotaExhausted, RateLimited, Transient,
};
use backstop_provider_http::FailureRule;
use backstop_provider_http::When::{Code, Has, Message, MessageStart, Type};

/// The first match wins, and the status decides without one.
pub(crate) const ROWS: &[FailureRule] = &[
    // The conversation is too long: OpenAI; llama.cpp; Mistral; OpenRouter, vLLM, Groq; Cohere.
    FailureRule::any(Code(&["context_length_exceeded"]), ContextOverflow),
    FailureRule::any(Type(&["exceed_context_size_error"]), ContextOverflow),
    FailureRule::new(400, Code(&["3051"]), ContextOverflow),
    FailureRule::any(
        Message(&["maximum context length", "reduce the length of the messages"]),
        ContextOverflow,
    ),
    FailureRule::new(400, MessageStart(&["too many tokens"]), ContextOverflow),
    // Filters: Azure; OpenRouter.
    FailureRule::new(
        400,
        Code(&["content_filter", "ResponsibleAIPolicyViolation"]),
        ContentBlocked,
    ),
    FailureRule::new(403, Has("/error/metadata/flagged_input"), ContentBlocked),
    // Those of Responses have status 400 or 403, or are inside a 200. A flagged prompt and a
    // malformed one have the same code; the message distinguishes them.
    FailureRule::any(
        Code(&[
            "bio_policy",
            "cyber_policy",
            "image_content_policy_violation",
            "misalignment_policy_violation",
        ]),
        ContentBlocked,
    ),
    FailureRule::new(400, Message(&["violating our usage policy"]), ContentBlocked),
    // Groq: the model wrote a call, or structured output, that cannot be parsed.
    FailureRule::new(400, Code(&["tool_use_failed", "output_parse_failed"]), Malformed),
    // The status is 404, 400 or 403.
    FailureRule::any(Code(&["model_not_found"]), NotFound),
    // Mistral.
    FailureRule::new(400, Type(&["invalid_model"]), NotFound),
    // A 429 that does not pass comes before those that do.
    FailureRule::new(
        429,
        Code(&[
            "insufficient_quota",
            "billing_hard_limit_reached",
            "credit_balance_exhausted",
            "organization_spend_limit_exceeded",
            "project_spend_limit_exceeded",
            "organization_usage_limit_exceeded",
        ]),
        QuotaExhausted,
    ),
    FailureRule::new(429, Type(&["insufficient_quota"]), QuotaExhausted),
    FailureRule::new(429, Code(&["rate_limit_exceeded", "slow_down"]), RateLimited),
    FailureRule::new(429, Type(&["rate_limit_error", "requests", "tokens"]), RateLimited),
    // These rows matter without a status: inside a 200.
    FailureRule::new(400, Code(&["conversation_locked"]), Transient),
    FailureRule::new(401, Code(&["invalid_api_key"]), AuthFailed),
    FailureRule::new(401, Type(&["authentication_error"]), AuthFailed),
    FailureRule::new(503, Code(&["server_is_overloaded"]), Transient),
    FailureRule::new(503, Type(&["service_unavailable_error"]), Transient),
    FailureRule::new(500, Type(&["server_error"]), Transient),
    FailureRule::new(500, Code(&["server_error"]), Transient),
    FailureRule::new(
        400,
        Code(&[
            "empty_image_file",
            "failed_to_download_image",
            "image_file_not_found",
            "image_file_too_large",
            "image_parse_error",
            "image_too_large",
            "image_too_small",
            "invalid_base64_image",
            "invalid_image",
            "invalid_image_format",
            "invalid_image_mode",
            "invalid_image_url",
            "invalid_prompt",
            "invalid_request_error",
            "unsupported_image_media_type",
        ]),
        InvalidRequest,
    ),
    FailureRule::new(400, Type(&["invalid_request_error"]), InvalidRequest),
];
