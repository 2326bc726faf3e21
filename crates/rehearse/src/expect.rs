//! What must come of a scenario, compared with what came of it.

use config::Expect;

use crate::report::RunReport;

/// Stands for any number of events.
const ANY: &str = "…";

/// Returns what differs, one line each; `None` when nothing does.
pub(crate) fn difference(expect: &Expect, report: &RunReport) -> Option<String> {
    let mut lines = Vec::new();
    let mut compare = |what: &str, expected: &str, actual: &str| {
        if expected != actual {
            lines.push(format!("{what}: expected {expected:?}, got {actual:?}"));
        }
    };
    if let Some(outcome) = expect.outcome {
        compare("outcome", outcome.as_str(), report.outcome.as_str());
    }
    if let Some(reason) = &expect.reason {
        let actual = report.reason.as_ref().map_or("", |reason| reason.as_str());
        compare("reason", reason, actual);
    }
    if let Some(output) = &expect.output {
        compare("output", output, &report.output);
    }
    if let Some(expected) = &expect.events {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        let actual: Vec<&str> = report.events.iter().map(|event| event.kind.event_type()).collect();
        if !matches(&expected, &actual) {
            lines.push("events:".to_owned());
            lines.push(format!("  expected {}", expected.join(" ")));
            lines.push(format!("  got      {}", actual.join(" ")));
        }
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Matches event types against a pattern in which `…` stands for any number of them.
fn matches(pattern: &[&str], events: &[&str]) -> bool {
    match pattern.split_first() {
        None => events.is_empty(),
        Some((&ANY, rest)) => (0..=events.len()).any(|skipped| matches(rest, &events[skipped..])),
        Some((first, rest)) => {
            events.split_first().is_some_and(|(event, left)| event == first && matches(rest, left))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ellipsis_matches_any_run_of_events() {
        let events = ["a", "b", "c", "b", "d"];
        for (pattern, expected) in [
            (&["a", "b", "c", "b", "d"][..], true),
            (&["a", "…", "d"], true),
            (&["…"], true),
            (&["…", "b", "d"], true),
            (&["a", "…", "c"], false),
            (&["a", "b", "c", "b"], false),
            (&["…", "e", "…"], false),
            (&[], false),
        ] {
            assert_eq!(matches(pattern, &events), expected, "{pattern:?}");
        }
    }
}
