//! Comparison of a run with the outcome that its scenario expects.

use backstop_config::Expect;

use crate::report::RunReport;

/// Pattern that matches any number of events.
const ANY: &str = "…";

/// Returns the differences, one line each; `None` if there are none.
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

/// Matches event types against a pattern; `…` matches any number of events. On a mismatch the last `…` takes one more
/// event, so that the number of steps is bounded by pattern length times number of events.
fn matches(pattern: &[&str], events: &[&str]) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut last_any = None;
    while seen < events.len() {
        if pattern.get(at) == Some(&ANY) {
            last_any = Some((at, seen));
            at += 1;
        } else if pattern.get(at) == Some(&events[seen]) {
            at += 1;
            seen += 1;
        } else if let Some((any, taken)) = last_any {
            last_any = Some((any, taken + 1));
            at = any + 1;
            seen = taken + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|rest| *rest == ANY)
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

    #[test]
    fn many_ellipses_over_many_events_take_no_time() {
        let events = ["x"; 2_000];
        let pattern: Vec<&str> = ["…", "x"].repeat(200).into_iter().chain(["…", "y"]).collect();
        assert!(!matches(&pattern, &events));
    }
}
