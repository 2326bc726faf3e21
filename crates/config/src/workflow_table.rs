//! `[[operator]]` of a scenario that is a workflow.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use crate::ConfigError;
use crate::hints::nearest;

/// The way in which a workflow dispatches its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkflowKind {
    /// All steps, one after the other.
    Sequence,
    /// All steps at once.
    Parallel,
    /// One step, which the first step chooses.
    Route,
    /// One step, over many inputs.
    Map,
    /// One step, restarted when it ends.
    Supervise,
}

/// The reaction of several steps to the failure of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailurePolicy {
    /// The others are cancelled.
    #[default]
    FailFast,
    /// The others continue.
    Collect,
}

/// The condition for the restart of a supervised step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RestartRule {
    /// Never.
    Never,
    /// After a failure.
    #[default]
    Transient,
    /// After each end.
    Always,
}

/// The keys of an operator that decide whether it is an agent or a workflow.
#[derive(Deserialize)]
struct OperatorKeys {
    name: String,
    kind: Option<Spanned<WorkflowKind>>,
    steps: Option<Spanned<Vec<Spanned<String>>>>,
    limit: Option<Spanned<u32>>,
    policy: Option<Spanned<FailurePolicy>>,
    restart: Option<Spanned<RestartRule>>,
    agent: Option<Spanned<IgnoredAny>>,
    model: Option<Spanned<IgnoredAny>>,
    tools: Option<Spanned<IgnoredAny>>,
    memory: Option<Spanned<IgnoredAny>>,
    hooks: Option<Spanned<IgnoredAny>>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    operator: Vec<OperatorKeys>,
}

type Key<'k> = (&'static str, Option<Range<usize>>);

impl OperatorKeys {
    fn of_workflow(&self) -> [Key<'_>; 4] {
        [
            ("steps", self.steps.as_ref().map(Spanned::span)),
            ("limit", self.limit.as_ref().map(Spanned::span)),
            ("policy", self.policy.as_ref().map(Spanned::span)),
            ("restart", self.restart.as_ref().map(Spanned::span)),
        ]
    }

    fn of_agent(&self) -> [Key<'_>; 5] {
        [
            ("agent", self.agent.as_ref().map(Spanned::span)),
            ("model", self.model.as_ref().map(Spanned::span)),
            ("tools", self.tools.as_ref().map(Spanned::span)),
            ("memory", self.memory.as_ref().map(Spanned::span)),
            ("hooks", self.hooks.as_ref().map(Spanned::span)),
        ]
    }
}

/// Refuses incomplete workflows and steps that name no operator.
pub(crate) fn check_workflows(path: &Path, text: &str) -> Result<(), ConfigError> {
    let File { operator } = crate::parse::parse(path, text)?;
    let names: Vec<&str> = operator.iter().map(|keys| keys.name.as_str()).collect();
    for keys in &operator {
        check(keys, &names).map_err(|WorkflowMistake { what, at, hint }| {
            ConfigError::new(path, what).in_text(text, at).with_hint(hint)
        })?;
    }
    Ok(())
}

struct WorkflowMistake {
    what: String,
    at: Range<usize>,
    hint: String,
}

fn refusal(what: impl Into<String>, at: Range<usize>, hint: impl Into<String>) -> WorkflowMistake {
    WorkflowMistake { what: what.into(), at, hint: hint.into() }
}

fn first<const N: usize>(keys: [Key<'_>; N]) -> Option<(&'static str, Range<usize>)> {
    keys.into_iter().find_map(|(key, at)| Some((key, at?)))
}

fn check(keys: &OperatorKeys, names: &[&str]) -> Result<(), WorkflowMistake> {
    let Some(kind) = &keys.kind else {
        return match first(keys.of_workflow()) {
            Some((key, at)) => {
                let what = format!("`{key}`: operator `{}` has no `kind`", keys.name);
                let hint = "add `kind = \"sequence\"`, `parallel`, `route`, `map` or `supervise`";
                Err(refusal(what, at, hint))
            }
            None => Ok(()),
        };
    };
    if let Some((key, at)) = first(keys.of_agent()) {
        let what = format!("`{key}`: operator `{}` is a workflow", keys.name);
        let hint = "take it out, or take `kind` out: an operator is an agent or a workflow";
        return Err(refusal(what, at, hint));
    }
    let (kind, at_kind) = (*kind.as_ref(), kind.span());
    check_steps(keys, kind, &at_kind, names)?;
    let has_limit = !matches!(kind, WorkflowKind::Sequence | WorkflowKind::Route);
    let has_policy = matches!(kind, WorkflowKind::Parallel | WorkflowKind::Map);
    let has_restart = kind == WorkflowKind::Supervise;
    let refused = [
        ("limit", has_limit, keys.limit.as_ref().map(Spanned::span)),
        ("policy", has_policy, keys.policy.as_ref().map(Spanned::span)),
        ("restart", has_restart, keys.restart.as_ref().map(Spanned::span)),
    ];
    if let Some((key, at)) =
        refused.into_iter().find_map(|(key, has, at)| Some((key, at.filter(|_| !has)?)))
    {
        let hint = "take it out; `limit` is of `parallel`, `map` and `supervise`, `policy` of `parallel` and \
                    `map`, `restart` of `supervise`";
        return Err(refusal(format!("`{key}`: this kind of workflow has none"), at, hint));
    }
    match &keys.limit {
        Some(limit) if *limit.as_ref() == 0 && kind != WorkflowKind::Supervise => {
            Err(refusal("`limit` must be at least 1", limit.span(), "write 1 or more"))
        }
        _ => Ok(()),
    }
}

fn check_steps(
    keys: &OperatorKeys,
    kind: WorkflowKind,
    at_kind: &Range<usize>,
    names: &[&str],
) -> Result<(), WorkflowMistake> {
    let none = Vec::new();
    let steps = keys.steps.as_ref().map_or(&none, Spanned::as_ref);
    let at = keys.steps.as_ref().map_or_else(|| at_kind.clone(), Spanned::span);
    let wrong = match (kind, steps.len()) {
        (WorkflowKind::Map | WorkflowKind::Supervise, 1) => None,
        (WorkflowKind::Map | WorkflowKind::Supervise, _) => {
            Some(("exactly one operator", "steps = [\"a\"]"))
        }
        (WorkflowKind::Route, 0 | 1) => Some((
            "the operator that chooses, and those it chooses from",
            "steps = [\"c\", \"a\", \"b\"]",
        )),
        (_, 0) => Some(("at least one operator", "steps = [\"a\", \"b\"]")),
        _ => None,
    };
    if let Some((wants, example)) = wrong {
        let what = format!("`steps`: this kind of workflow needs {wants}");
        return Err(refusal(what, at, format!("write `{example}`")));
    }
    let unknown = steps.iter().find(|step| !names.contains(&step.as_ref().as_str()));
    let Some(unknown) = unknown else { return Ok(()) };
    let name = unknown.as_ref();
    let what = format!("`steps`: there is no operator named `{name}`");
    let hint = nearest(name, names);
    let hint = hint.unwrap_or_else(|| "add an `[[operator]]` of this name".to_owned());
    Err(refusal(what, unknown.span(), hint))
}
