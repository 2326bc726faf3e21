//! Checks of keys about approvals, with their places in the text.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use crate::ConfigError;
use crate::parse::parse;

/// The checked tables of a file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ApprovalTables {
    tools: Vec<ApprovalTool>,
    operator: Vec<ApprovalOperator>,
    approvals: Vec<DecisionKeys>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ApprovalOperator {
    tools: Vec<ApprovalTool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ApprovalTool {
    kind: String,
    name: String,
    approval: Option<bool>,
    expires_after_ms: Option<Spanned<IgnoredAny>>,
    approvers: Option<Spanned<IgnoredAny>>,
    approval_schema: Option<Spanned<IgnoredAny>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DecisionKeys {
    verdict: String,
    arguments: Option<Spanned<IgnoredAny>>,
    data: Option<Spanned<IgnoredAny>>,
}

/// Built-in tools that ask for approval of each call by default.
const ASKED_ABOUT: [&str; 2] = ["fs_write", "shell"];

impl ApprovalTool {
    fn is_asked_about(&self) -> bool {
        let by_itself = || self.kind == "builtin" && ASKED_ABOUT.contains(&self.name.as_str());
        self.approval.unwrap_or_else(by_itself)
    }
}

/// Refuses keys about approvals in tools without approval, and keys of an approval in a denial.
pub(crate) fn check_approvals(path: &Path, text: &str) -> Result<(), ConfigError> {
    let ApprovalTables { tools, operator, approvals } = parse(path, text)?;
    let refused = |key: &str, span: Range<usize>, goes_with: &str| {
        Err(ConfigError::goes_with(path, key, goes_with).in_text(text, span))
    };
    let tools = tools.iter().chain(operator.iter().flat_map(|operator| &operator.tools));
    for tool in tools.filter(|tool| !tool.is_asked_about()) {
        let keys = [
            ("expires_after_ms", &tool.expires_after_ms),
            ("approvers", &tool.approvers),
            ("approval_schema", &tool.approval_schema),
        ];
        if let Some((key, Some(value))) = keys.into_iter().find(|(_, value)| value.is_some()) {
            return refused(key, value.span(), "approval = true");
        }
    }
    for decision in approvals.iter().filter(|decision| decision.verdict == "deny") {
        let keys = [("arguments", &decision.arguments), ("data", &decision.data)];
        if let Some((key, Some(value))) = keys.into_iter().find(|(_, value)| value.is_some()) {
            return refused(key, value.span(), "verdict = \"approve\"");
        }
    }
    Ok(())
}
