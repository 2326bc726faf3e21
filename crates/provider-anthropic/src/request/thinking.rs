//! Thinking of earlier answers.

use backstop_provider_http::Endpoint;
use layer0::JsonText;
use serde::Deserialize;

/// The fields of a kept block that show whether it is signed.
#[derive(Deserialize)]
struct SignedFields {
    r#type: String,
    signature: Option<String>,
}

/// Returns whether a kept block is sent. Anthropic refuses thinking without its signature; some
/// other endpoints sign none, and require it back with the calls that it led to.
pub(super) fn is_sent(block: &JsonText, has_calls: bool, endpoint: &Endpoint) -> bool {
    !is_unsigned(block) || (has_calls && !endpoint.is_own() && !is_anthropic(endpoint.host()))
}

fn is_unsigned(block: &JsonText) -> bool {
    block.read::<SignedFields>().is_ok_and(|block| {
        block.r#type == "thinking" && block.signature.unwrap_or_default().is_empty()
    })
}

fn is_anthropic(host: &str) -> bool {
    host == "anthropic.com" || host.ends_with(".anthropic.com")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unsigned_thinking_is_told_apart() {
        for (block, expected) in [
            (json!({ "type": "thinking", "thinking": "hm" }), true),
            (json!({ "type": "thinking", "thinking": "hm", "signature": "" }), true),
            (json!({ "type": "thinking", "thinking": "hm", "signature": "s" }), false),
            (json!({ "type": "redacted_thinking", "data": "d" }), false),
        ] {
            assert_eq!(is_unsigned(&JsonText::from(&block)), expected, "{block}");
        }
        for (host, expected) in
            [("api.anthropic.com", true), ("notanthropic.com", false), ("api.deepseek.com", false)]
        {
            assert_eq!(is_anthropic(host), expected, "{host}");
        }
    }
}
