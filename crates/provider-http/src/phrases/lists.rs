/// A phrase that classifies a failure.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Phrase {
    /// The vendor.
    pub from: &'static str,
    /// The pieces of the phrase, in this order, ignoring ASCII case.
    pub words: &'static [&'static str],
    /// The status of the failure.
    pub status: u16,
    /// A body in which it was seen.
    pub body: &'static str,
}

impl Phrase {
    /// Returns whether a text in lower case contains all pieces in their order.
    pub(super) fn is_in(&self, text: &str) -> bool {
        let mut rest = text;
        self.words.iter().all(|word| match rest.split_once(word) {
            Some((_, behind)) => {
                rest = behind;
                true
            }
            None => false,
        })
    }
}

const fn phrase(
    from: &'static str,
    words: &'static [&'static str],
    status: u16,
    body: &'static str,
) -> Phrase {
    Phrase { from, words, status, body }
}

/// Phrases for a conversation that is longer than the model's context.
pub const OVERFLOWS: &[Phrase] = &[
    phrase(
        "OpenAI, Groq, Cerebras",
        &["context_length_exceeded"],
        400,
        r#"{"error":{"message":"Your input is too long.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
    ),
    phrase(
        "OpenAI Responses",
        &["exceeds the context window"],
        400,
        r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","param":"input","code":null}}"#,
    ),
    phrase(
        "OpenAI, vLLM, DeepSeek, OpenRouter",
        &["maximum context length is"],
        400,
        r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4900 in the messages, 100 in the completion).","type":"BadRequestError","param":null,"code":400}"#,
    ),
    phrase(
        "OpenAI",
        &["maximum context length has been exceeded"],
        400,
        r#"{"error":{"message":"This model's maximum context length has been exceeded.","type":"invalid_request_error","param":null,"code":null}}"#,
    ),
    phrase(
        "Azure, Groq, Cerebras",
        &["reduce the length of the messages"],
        400,
        r#"{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error","param":"messages"}}"#,
    ),
    phrase(
        "Azure",
        &["input tokens exceed the configured limit of"],
        400,
        r#"{"error":{"message":"Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens.","type":"invalid_request_error","param":"messages","code":null}}"#,
    ),
    phrase(
        "OpenRouter",
        &["reduce the length of either one"],
        400,
        r#"{"error":{"message":"You requested about 42832 tokens (42832 of text input). Please reduce the length of either one, or use the \"middle-out\" transform.","code":400,"metadata":{"provider_name":null}}}"#,
    ),
    phrase(
        "OpenRouter",
        &["exceeds", "maximum allowed input length"],
        400,
        r#"{"error":{"message":"Input length 140000 exceeds the maximum allowed input length of 131072 tokens.","code":400}}"#,
    ),
    phrase(
        "Anthropic, Bedrock, Vertex",
        &["prompt is too long"],
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213462 tokens > 200000 maximum"}}"#,
    ),
    phrase(
        "Anthropic",
        &["exceed context limit"],
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 179413 + 32768 > 200000, decrease input length or `max_tokens` and try again"}}"#,
    ),
    phrase(
        "Anthropic, z.ai",
        &["model_context_window_exceeded"],
        400,
        r#"{"error":{"code":"1261","message":"model_context_window_exceeded"}}"#,
    ),
    phrase(
        "Gemini",
        &["input token count", "exceeds the maximum number of tokens"],
        400,
        r#"{"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
    ),
    phrase(
        "Vertex",
        &["input token count is", "only supports up to"],
        400,
        r#"{"error":{"code":400,"message":"Unable to submit request because the input token count is 40000 but model only supports up to 32768. Reduce the input token count and try again.","status":"INVALID_ARGUMENT"}}"#,
    ),
    phrase(
        "Bedrock",
        &["input is too long"],
        400,
        r#"{"message":"Input is too long for requested model."}"#,
    ),
    phrase(
        "Bedrock",
        &["input tokens exceeded"],
        400,
        r#"{"message":"Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again."}"#,
    ),
    phrase(
        "Bedrock",
        &["too many input tokens"],
        400,
        r#"{"message":"400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 8421"}"#,
    ),
    phrase(
        "Together, SGLang",
        &["is longer than the model's context length"],
        400,
        r#"{"object":"error","message":"The input (34432 tokens) is longer than the model's context length (32768 tokens).","type":"BadRequestError","param":null,"code":400}"#,
    ),
    phrase(
        "SGLang",
        &["exceeds", "maximum context length"],
        400,
        r#"{"object":"error","message":"Requested token count exceeds the model's maximum context length of 131072 tokens. You requested a total of 140000 tokens.","type":"BadRequestError","param":null,"code":400}"#,
    ),
    phrase(
        "TGI, Together",
        &["`inputs` tokens + `max_new_tokens` must be <="],
        422,
        r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 1000 `max_new_tokens`","error_type":"validation"}"#,
    ),
    phrase(
        "TGI",
        &["`inputs` must have less than", "tokens"],
        422,
        r#"{"error":"Input validation error: `inputs` must have less than 1024 tokens. Given: 1168","error_type":"validation"}"#,
    ),
    phrase(
        "xAI",
        &["maximum prompt length is"],
        400,
        r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
    ),
    phrase(
        "llama.cpp",
        &["exceed_context_size_error"],
        400,
        r#"{"error":{"code":400,"message":"the request is too large","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}"#,
    ),
    phrase(
        "llama.cpp",
        &["exceeds the available context size"],
        400,
        r#"{"error":{"code":400,"message":"request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"invalid_request_error"}}"#,
    ),
    phrase(
        "llama-cpp-python",
        &["exceed context window of"],
        400,
        r#"{"error":{"message":"Requested tokens (5000) exceed context window of 4096","type":"invalid_request_error","param":null,"code":null}}"#,
    ),
    phrase(
        "vLLM",
        &["is longer than the maximum model length"],
        400,
        r#"{"error":{"message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens.","type":"BadRequestError","param":null,"code":400}}"#,
    ),
    phrase(
        "LM Studio",
        &["greater than the context length"],
        400,
        r#"{"error":"The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length."}"#,
    ),
    phrase(
        "LM Studio",
        &["loaded with context length of only"],
        400,
        r#"{"error":"Trying to keep the first 4539 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."}"#,
    ),
    phrase(
        "Qwen",
        &["range of input length should be"],
        400,
        r#"{"error":{"code":"invalid_parameter_error","param":null,"message":"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]","type":"invalid_request_error"},"request_id":"r"}"#,
    ),
    phrase(
        "Moonshot",
        &["exceeded model token limit"],
        400,
        r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)","type":"invalid_request_error"}}"#,
    ),
    phrase(
        "MiniMax",
        &["context window exceeds limit"],
        400,
        r#"{"type":"error","error":{"type":"bad_request_error","message":"invalid params, context window exceeds limit (2013)","http_code":"400"},"request_id":"r"}"#,
    ),
    phrase(
        "Copilot",
        &["model_max_prompt_tokens_exceeded"],
        400,
        r#"{"error":{"message":"the prompt is too large","code":"model_max_prompt_tokens_exceeded"}}"#,
    ),
    phrase(
        "Copilot",
        &["token count of", "exceeds the limit of"],
        400,
        r#"{"error":{"message":"prompt token count of 151234 exceeds the limit of 128000","code":""}}"#,
    ),
    phrase(
        "LiteLLM",
        &["contextwindowexceedederror"],
        400,
        r#"{"error":{"message":"litellm.ContextWindowExceededError: litellm.BadRequestError: it does not fit. Received Model Group=m","type":null,"param":null,"code":"400"}}"#,
    ),
    phrase(
        "Mistral",
        &["too large for model with", "maximum context length"],
        400,
        r#"{"object":"error","message":"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_error","param":null,"code":null}"#,
    ),
    phrase(
        "z.ai",
        &["prompt exceeds max length"],
        400,
        r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#,
    ),
    phrase(
        "Ollama",
        &["input length exceeds the context length"],
        500,
        r#"{"error":"the input length exceeds the context length"}"#,
    ),
    phrase(
        "Ollama",
        &["prompt too long; exceeded", "context length"],
        400,
        r#"{"error":"prompt too long; exceeded max context length by 5 tokens"}"#,
    ),
    phrase(
        "Cohere",
        &["too many tokens: total number of tokens in the prompt cannot exceed"],
        400,
        r#"{"message":"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292."}"#,
    ),
];

/// Phrases for an account that has used up its budget.
pub const QUOTAS: &[Phrase] = &[
    phrase(
        "LiteLLM",
        &["budget_exceeded"],
        400,
        r#"{"error":{"message":"Over budget: spend=12.1, max=10","type":"budget_exceeded","param":null,"code":"400"}}"#,
    ),
    phrase(
        "LiteLLM",
        &["budget has been exceeded"],
        429,
        r#"{"error":{"message":"Budget has been exceeded! Current cost: 12.1, Max budget: 10.0","type":null,"param":null,"code":"429"}}"#,
    ),
    phrase(
        "LiteLLM",
        &["exceededbudget"],
        400,
        r#"{"error":{"message":"ExceededBudget: User=u over budget. Spend=1, Budget=0.5","type":"auth_error","param":null,"code":"400"}}"#,
    ),
    phrase(
        "Anthropic",
        &["credit balance is too low"],
        400,
        r#"{"error":{"message":"litellm.BadRequestError: AnthropicException - Your credit balance is too low to access the Anthropic API.","type":null,"param":null,"code":"400"}}"#,
    ),
    phrase(
        "OpenAI",
        &["insufficient_quota"],
        429,
        r#"{"error":{"message":"litellm.RateLimitError: RateLimitError: OpenAIException - Error code: 429 - {'error': {'message': 'Check your plan', 'code': 'insufficient_quota'}}","type":"throttling_error","param":null,"code":"429"}}"#,
    ),
    phrase(
        "OpenAI",
        &["billing_hard_limit_reached"],
        400,
        r#"{"error":{"message":"upstream said: billing_hard_limit_reached","type":"invalid_request_error","param":null,"code":null}}"#,
    ),
];

/// Phrases for a request that a filter blocked.
pub const FILTERED: &[Phrase] = &[
    phrase(
        "Azure",
        &["responsibleaipolicyviolation"],
        400,
        r#"{"error":{"message":"litellm.BadRequestError: AzureException - {'innererror': {'code': 'ResponsibleAIPolicyViolation'}}","type":null,"param":null,"code":"400"}}"#,
    ),
    phrase(
        "LiteLLM",
        &["contentpolicyviolationerror"],
        400,
        r#"{"error":{"message":"litellm.ContentPolicyViolationError: it was blocked","type":null,"param":null,"code":"400"}}"#,
    ),
    phrase(
        "OpenAI",
        &["content_policy_violation"],
        400,
        r#"{"error":{"message":"upstream said: content_policy_violation","type":"invalid_request_error","param":null,"code":null}}"#,
    ),
    phrase(
        "Azure",
        &["code:content_filter"],
        400,
        r#"{"error":{"message":"AzureException - Error code: 400 - {'error': {'message': 'it was filtered', 'code': 'content_filter'}}","type":null,"param":null,"code":"400"}}"#,
    ),
    phrase(
        "Anthropic",
        &["blocked by content filtering policy"],
        400,
        r#"{"error":{"message":"AnthropicException - Output blocked by content filtering policy","type":null,"param":null,"code":"400"}}"#,
    ),
    phrase(
        "Azure",
        &["triggering", "content management policy"],
        400,
        r#"{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy. Please modify your prompt and retry.","type":null,"param":"prompt","code":null}}"#,
    ),
];

/// Phrases for a model that is unknown, or unknown to this key.
pub const UNKNOWN_MODELS: &[Phrase] = &[
    phrase(
        "Bedrock",
        &["model identifier is invalid"],
        400,
        r#"{"message":"The provided model identifier is invalid."}"#,
    ),
    phrase(
        "LiteLLM",
        &["invalid model name passed"],
        400,
        r#"{"error":{"message":"/chat/completions: Invalid model name passed in model=m. Call `/v1/models` to view available models for your key.","type":"invalid_request_error","param":"model","code":"400"}}"#,
    ),
    phrase(
        "OpenAI",
        &["code:model_not_found"],
        400,
        r#"{"error":{"message":"The requested model 'm' does not exist.","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#,
    ),
    phrase(
        "OpenRouter",
        &["is not a valid model id"],
        400,
        r#"{"error":{"message":"m is not a valid model ID","code":400}}"#,
    ),
    phrase(
        "DeepSeek",
        &["model not exist"],
        400,
        r#"{"error":{"message":"Model Not Exist","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
    ),
];
