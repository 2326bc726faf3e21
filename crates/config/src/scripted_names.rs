//! Checks of the names and actions in `[[hooks]]`, `[[tools]]` and `[expect]` of a scenario.

use std::ops::Range;
use std::path::Path;

use layer0::event::EVENT_TYPES;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use toml::Spanned;

use crate::ConfigError;
use crate::hints::nearest;
use crate::parse::parse;

/// Tools of every agent.
const BUILT_IN: [&str; 2] = ["get_error_detail", "get_tool_result"];
/// The placeholder for any number of events.
const ANY_EVENTS: &str = "…";

/// The checked tables of a file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ScriptedTables {
    tools: Vec<NamedTool>,
    hooks: Vec<HookKeys>,
    operator: Vec<OperatorTables>,
    expect: ExpectTable,
}

#[derive(Deserialize)]
struct OperatorTables {
    name: String,
    #[serde(default)]
    tools: Vec<NamedTool>,
    #[serde(default)]
    hooks: Vec<HookKeys>,
}

#[derive(Deserialize)]
struct NamedTool {
    name: String,
    #[serde(default)]
    calls: Vec<CallKeys>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CallKeys {
    output: Option<Spanned<IgnoredAny>>,
    output_bytes: Option<Spanned<IgnoredAny>>,
    error: Option<Spanned<IgnoredAny>>,
    panic: Option<Spanned<IgnoredAny>>,
    code: Option<Spanned<IgnoredAny>>,
    retryable: Option<Spanned<IgnoredAny>>,
    retry_after_ms: Option<Spanned<IgnoredAny>>,
}

#[derive(Deserialize)]
struct HookKeys {
    point: String,
    tool: Option<Spanned<String>>,
    action: Spanned<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ExpectTable {
    events: Vec<Spanned<String>>,
}

/// Refuses hooks that are never called, calls with two results, and unknown types of events.
pub(crate) fn check_scripted_names(path: &Path, text: &str) -> Result<(), ConfigError> {
    let ScriptedTables { tools, hooks, operator, expect } = parse(path, text)?;
    let operators: Vec<&str> = operator.iter().map(|operator| operator.name.as_str()).collect();
    let below = operator.iter().map(|operator| (&operator.tools, &operator.hooks));
    for (tools, hooks) in std::iter::once((&tools, &hooks)).chain(below) {
        let own = tools.iter().map(|tool| tool.name.as_str());
        let known: Vec<&str> = own.chain(operators.iter().copied()).chain(BUILT_IN).collect();
        hooks.iter().try_for_each(|hook| check_hook(path, text, hook, &known))?;
        tools.iter().flat_map(|tool| &tool.calls).try_for_each(|it| check_call(path, text, it))?;
    }
    for event in &expect.events {
        let name = event.as_ref().as_str();
        if name != ANY_EVENTS && !EVENT_TYPES.contains(&name) {
            let error = ConfigError::new(path, format!("`events`: there is no event `{name}`"));
            let error = error.in_text(text, event.span());
            return Err(match near(name, EVENT_TYPES) {
                Some(hint) => error.with_hint(hint),
                None => {
                    error.with_hint("docs/events.md lists the types; `…` stands for any events")
                }
            });
        }
    }
    Ok(())
}

fn check_hook(path: &Path, text: &str, hook: &HookKeys, known: &[&str]) -> Result<(), ConfigError> {
    let is_at_tools = matches!(hook.point.as_str(), "before_tool" | "after_tool");
    if hook.action.as_ref().get("replace_arguments").is_some() && hook.point != "before_tool" {
        let error = ConfigError::goes_with(path, "replace_arguments", "point = \"before_tool\"");
        return Err(error.in_text(text, hook.action.span()));
    }
    let Some(tool) = &hook.tool else { return Ok(()) };
    let at = tool.span();
    if !is_at_tools {
        let other = "point = \"before_tool\"` or `\"after_tool\"";
        return Err(ConfigError::goes_with(path, "tool", other).in_text(text, at));
    }
    if known.contains(&tool.as_ref().as_str()) {
        return Ok(());
    }
    let error = ConfigError::new(path, format!("`tool`: there is no tool `{}`", tool.as_ref()));
    let error = error.in_text(text, at);
    Err(match nearest(tool.as_ref(), known) {
        Some(hint) => error.with_hint(hint),
        None => error,
    })
}

/// Returns a hint with the nearest type of event, if one is near.
fn near(name: &str, known: &[&str]) -> Option<String> {
    nearest(name, known).filter(|hint| hint.starts_with("did you mean"))
}

fn check_call(path: &Path, text: &str, call: &CallKeys) -> Result<(), ConfigError> {
    type Key<'k> = (&'static str, &'k Option<Spanned<IgnoredAny>>);
    fn present_keys(keys: &[Key<'_>]) -> Vec<(&'static str, Range<usize>)> {
        let given = keys.iter().filter_map(|(key, value)| Some((*key, value.as_ref()?.span())));
        given.collect()
    }
    let ends = present_keys(&[
        ("output", &call.output),
        ("output_bytes", &call.output_bytes),
        ("error", &call.error),
        ("panic", &call.panic),
    ]);
    if let [(first, _), (second, at), ..] = &ends[..] {
        let what = format!("`{first}` and `{second}`: a call has one end");
        let error = ConfigError::new(path, what).in_text(text, at.clone());
        return Err(error.with_hint("take one of them out, or make two calls of them"));
    }
    let of_error = present_keys(&[
        ("code", &call.code),
        ("retryable", &call.retryable),
        ("retry_after_ms", &call.retry_after_ms),
    ]);
    match of_error.first() {
        Some((key, at)) if call.error.is_none() => {
            Err(ConfigError::goes_with(path, key, "error = \"…\"").in_text(text, at.clone()))
        }
        _ => Ok(()),
    }
}
