//! Texts about failed calls for the model: one line, bounded, about what the model can change.

use layer0::failure::{Chain, Failure};
use layer0::text;

use crate::ToolError;

/// Maximum number of tool names in the text for an unknown tool.
const MAX_NAMES: usize = 10;
/// Maximum number of characters from a tool in a line.
const MAX_CHARS: usize = 500;

/// Returns the text of a failed call of `tool`.
///
/// The tool's own report is cut to 500 characters here; with an error store, the caller stores the whole report and
/// shows a summary instead.
#[must_use]
pub fn failed_text(tool: &str, error: &ToolError) -> String {
    match error.kind() {
        ToolError::ApprovalDenied { by, reason } => text::denial(by, reason),
        ToolError::Cancelled => text::CANCELLED.to_owned(),
        ToolError::Caused(cause) => cut(&Chain(&**cause).to_string()),
        ToolError::DoneElsewhere(why) => format!("Not run: {}", cut(why)),
        ToolError::Environment(error) => cut(&format!("{}: {}", error.code(), error.what())),
        ToolError::ExecutionFailed(text) => cut(text),
        ToolError::Interrupted => text::INTERRUPTED.to_owned(),
        ToolError::InvalidInput(why) => format!("Invalid input: {}", cut(why)),
        ToolError::InvalidOutput(why) => {
            format!("Tool '{tool}' returned invalid output: {}", cut(why))
        }
        ToolError::NotFound(name) => format!("Tool '{}' not found", cut(name)),
        ToolError::Panicked(text) => format!("Tool '{tool}' panicked: {}", cut(text)),
        ToolError::PermissionDenied { tool, capability } => {
            format!("Permission denied: tool '{}' requires '{}'", cut(tool), cut(capability))
        }
        ToolError::RepeatedFailure { code, count } => {
            format!("Not run: failed {count} times with {}", cut(code))
        }
        ToolError::Skipped { hook, reason } => {
            format!("Skipped by hook '{}': {}", cut(hook), cut(reason))
        }
        ToolError::Unavailable(why) => format!("Tool '{tool}' is not available: {}", cut(why)),
        timeout @ ToolError::Timeout { .. } => format!("Tool '{tool}' {timeout}"),
        ToolError::Other(error) => cut(&Chain(&**error).to_string()),
        ToolError::Detailed { error, .. } => failed_text(tool, error),
    }
}

/// Returns the most similar known name; `None` if there are none.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let near = |other: &&str| strsim::jaro_winkler(name, other);
    known.max_by(|a, b| near(a).total_cmp(&near(b)))
}

/// Returns the text for a tool that does not exist, with the most similar names first.
pub fn missing_text<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let mut known: Vec<(&str, f64)> =
        known.map(|other| (other, strsim::jaro_winkler(name, other))).collect();
    known.sort_by(|a, b| b.1.total_cmp(&a.1));
    let missing = format!("Tool '{}' not found.", cut(name));
    match known.len() {
        0 => format!("{missing} No tools are available"),
        all => {
            let names: Vec<&str> = known.iter().take(MAX_NAMES).map(|(name, _)| *name).collect();
            let more = if all > MAX_NAMES {
                format!(" and {} more", all - MAX_NAMES)
            } else {
                String::new()
            };
            format!("{missing} Available: {}{more}", names.join(", "))
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use layer0::error::EnvError;

    use super::*;

    /// Spec: T3
    #[test]
    fn texts_say_what_the_model_can_change() {
        #[track_caller]
        fn check(error: ToolError, text: &str) {
            assert_eq!(failed_text("X", &error), text);
        }
        check(
            ToolError::permission_denied("code.exec", "process:spawn"),
            "Permission denied: tool 'code.exec' requires 'process:spawn'",
        );
        check(
            ToolError::InvalidInput("error_id must be a string".into()),
            "Invalid input: error_id must be a string",
        );
        check(ToolError::timeout(Duration::from_secs(30)), "Tool 'X' timed out after 30s");
        check(ToolError::Panicked("index 3".into()), "Tool 'X' panicked: index 3");
        check(
            EnvError::NetworkDenied("host example.org is not among api.example.com".into()).into(),
            "env.network_denied: host example.org is not among api.example.com",
        );
        check(ToolError::Interrupted, "Interrupted: may already have acted");
        check(ToolError::Caused("no connection".into()).with_code("E1"), "no connection");
        check(
            ToolError::ExecutionFailed("HTTP request failed: connection refused".into())
                .with_code("E1"),
            "HTTP request failed: connection refused",
        );
    }

    /// Spec: T3
    #[test]
    fn a_missing_tool_offers_the_nearest_names_first() {
        let known = ["http.fetch", "web.search"];
        assert_eq!(
            missing_text("web.search2", known.into_iter()),
            "Tool 'web.search2' not found. Available: web.search, http.fetch"
        );
        let many: Vec<String> = (0..40).map(|n| format!("tool-{n}")).collect();
        let text = missing_text(&"x".repeat(9_000), many.iter().map(String::as_str));
        assert!(text.len() < 1_000 && text.ends_with("and 30 more"), "{text}");
        assert_eq!(
            missing_text("x", std::iter::empty()),
            "Tool 'x' not found. No tools are available"
        );
    }
}
