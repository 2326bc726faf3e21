//! Stop reasons that mean that the provider failed.

/// Parts of such words, in lower case: `error`, `network_error` (z.ai),
/// `insufficient_system_resource` (DeepSeek), `abort` (vLLM, SGLang), and likely words of others.
const FAILURES: &[&str] = &[
    "abort",
    "capacity",
    "crash",
    "disconnect",
    "error",
    "exception",
    "fail",
    "insufficient",
    "interrupted",
    "overload",
    "out_of_memory",
    "preempt",
    "rate_limit",
    "server_busy",
    "throttl",
    "timed_out",
    "timed out",
    "timeout",
    "unavailable",
];

/// Returns whether a stop reason means that the provider failed.
pub(crate) fn is_failure_word(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    FAILURES.iter().any(|failure| word.contains(failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: P9
    #[test]
    fn failure_words_are_told_from_reasons() {
        for word in [
            "error",
            "ERROR",
            "network_error",
            "insufficient_system_resource",
            "abort",
            "aborted",
            "engine_overloaded",
            "upstream_failure",
            "over_capacity",
            "rate_limit_exceeded",
            "THROTTLED",
            "cuda_out_of_memory",
            "request timeout",
        ] {
            assert!(is_failure_word(word), "{word}");
        }
        for word in ["stop", "length", "abducted", "OTHER", "safety", "max_turns", "incomplete"] {
            assert!(!is_failure_word(word), "{word}");
        }
    }
}
