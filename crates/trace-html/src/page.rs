//! The page and the data in it.

use std::collections::BTreeMap;

use backstop_error_store::{ErrorRecord, readable};
use backstop_event_log::{RunSummary, describe};
use layer0::code::CATALOGUE;
use layer0::event::Event;
use layer0::stop::Outcome;
use serde::Serialize;

const TEMPLATE: &str = include_str!("../page/template.html");
const STYLE: &str = include_str!("../page/style.css");
/// Scripts that fold the events into turns and calls, then show them.
const SCRIPT: [&str; 4] = [
    include_str!("../page/fold.js"),
    include_str!("../page/element.js"),
    include_str!("../page/timeline.js"),
    include_str!("../page/show.js"),
];

/// The data of a run for its page: its events and stored errors.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecordedRun {
    /// Summary of the run.
    pub summary: RunSummary,
    /// Events of the run, in order, without erased ones.
    pub events: Vec<Event>,
    /// Errors stored by the run, without pruned ones.
    pub errors: Vec<ErrorRecord>,
}

impl RecordedRun {
    /// Combines the parts of a run.
    #[must_use]
    pub const fn new(summary: RunSummary, events: Vec<Event>, errors: Vec<ErrorRecord>) -> Self {
        Self { summary, events, errors }
    }
}

/// The data for the script.
#[derive(Serialize)]
struct PageData<'a> {
    #[serde(flatten)]
    top: RunView<'a>,
    /// The child runs.
    below: Vec<RunView<'a>>,
    codes: BTreeMap<&'static str, Explained>,
}

/// A run in the form that the script reads.
#[derive(Serialize)]
struct RunView<'a> {
    summary: &'a RunSummary,
    events: &'a [Event],
    /// One line per event, as `backstop trace` prints it.
    lines: Vec<String>,
    errors: Vec<StoredErrorView<'a>>,
}

impl<'a> RunView<'a> {
    fn from_run(run: &'a RecordedRun) -> Self {
        let stored = |record: &'a ErrorRecord| StoredErrorView {
            id: record.id().as_str(),
            text: readable(record.raw()),
            occurrences: record.occurrences(),
        };
        Self {
            summary: &run.summary,
            events: &run.events,
            lines: run.events.iter().map(|event| describe(&event.kind)).collect(),
            errors: run.errors.iter().map(stored).collect(),
        }
    }
}

/// A stored error, with the text that the model could ask for.
#[derive(Serialize)]
struct StoredErrorView<'a> {
    id: &'a str,
    text: String,
    /// The number of times it was seen in the session.
    occurrences: u64,
}

/// The meaning of a code, and advice.
#[derive(Serialize)]
struct Explained {
    meaning: &'static str,
    advice: &'static str,
}

/// Renders the page of a run and its child runs, each at the place of its dispatch.
///
/// The page is complete: style, script and data are in it. It grows with the records, by about the size of their JSON.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "the keys of events and errors are strings")]
pub fn page(run: &RecordedRun, below: &[RecordedRun]) -> String {
    let codes = CATALOGUE
        .iter()
        .map(|entry| (entry.code, Explained { meaning: entry.meaning, advice: entry.advice }))
        .collect();
    let below = below.iter().map(RunView::from_run).collect();
    let data = PageData { top: RunView::from_run(run), below, codes };
    let json = serde_json::to_string(&data).expect("the keys of events and errors are strings");
    let page = TEMPLATE.replacen("{{style}}", STYLE, 1);
    let page = page.replacen("{{script}}", &SCRIPT.concat(), 1);
    let page = page.replacen("{{noscript}}", &without_script(&run.summary), 1);
    // The data goes in last, so that no placeholder in it is filled.
    page.replacen("{{data}}", &inert(&json), 1)
}

/// Returns the summary of a run for readers without scripts.
fn without_script(summary: &RunSummary) -> String {
    let outcome = summary.outcome.map_or(summary.state.as_str(), Outcome::as_str);
    let run = summary.run.as_str();
    let text = format!(
        "Run {run} of agent {}: {outcome}. This page shows it with JavaScript, which is switched off here; \
         `backstop trace {run}` prints it as text.",
        summary.agent
    );
    escape(&text)
}

/// Escapes markup and placeholders in a text.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('{', "&#123;")
}

/// Escapes JSON so that it opens or closes no element: `<` occurs only in its strings.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_error_store::Origin;
    use layer0::event::{Actor, EventKind, ModelResponded, ToolFailure, ToolResponded};
    use layer0::message::{StopReason, ToolCall};
    use layer0::usage::TokenUsage;
    use layer0::{Code, Timestamp};
    use serde_json::json;

    const HOSTILE: &str = "</script><script>alert(1)</script><!-- {{style}}{{script}}{{data}} -->";

    fn event(seq: u64, kind: impl Into<EventKind>) -> Event {
        Event::new("run_1", seq, Timestamp::default(), Actor::Model, kind)
    }

    fn hostile() -> String {
        let calls = [ToolCall::new("c", HOSTILE, json!({ HOSTILE: HOSTILE }))];
        let (reason, usage) = (StopReason::ToolUse, TokenUsage::default());
        let mut responded = ModelResponded::new(1, HOSTILE, calls.into(), reason, usage);
        responded.thinking = Some(HOSTILE.into());
        let mut failure = ToolFailure::new("tool.execution_failed", HOSTILE);
        failure.code = Some(HOSTILE.into());
        failure.error_id = Some("err_1".into());
        let answered = ToolResponded::failure("c".into(), HOSTILE.into(), HOSTILE, 1, failure);
        let stored = ErrorRecord::of_row(
            "err_1",
            Origin::new(Timestamp::default(), "ses_1", "run_1", "c", HOSTILE),
            Code::new("tool.execution_failed"),
            None,
            HOSTILE,
            &json!({ "message": HOSTILE }).to_string(),
        );
        let mut summary = RunSummary::new("run_1".into());
        summary.agent = HOSTILE.into();
        let events = vec![event(1, responded), event(2, answered)];
        page(&RecordedRun::new(summary, events, vec![stored]), &[])
    }

    /// Spec: D10
    #[test]
    fn hostile_text_stays_data() {
        let page = hostile();
        let lower = page.to_ascii_lowercase();
        assert_eq!(lower.matches("<script").count(), 2);
        assert_eq!(lower.matches("</script").count(), 2);
        assert!(!page.contains("<!--"));
        let (_, after) = page.split_once("id=\"data\">").unwrap();
        let (data, _) = after.split_once("</script>").unwrap();
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["summary"]["agent"], HOSTILE);
        assert_eq!(data["events"][0]["data"]["text"], HOSTILE);
        assert_eq!(data["events"][1]["data"]["tool"], HOSTILE);
        assert_eq!(data["errors"][0]["text"], HOSTILE);
    }

    /// Spec: D10, W2
    #[test]
    fn without_a_script_the_page_says_so() {
        let page = hostile();
        let (_, after) = page.split_once("<noscript><p>").unwrap();
        let (text, _) = after.split_once("</p></noscript>").unwrap();
        assert!(text.starts_with("Run run_1 of agent &lt;/script>&lt;script>alert(1)"), "{text}");
        assert!(text.contains("&#123;&#123;data}}") && text.contains(": running. "), "{text}");
        assert!(text.ends_with("`backstop trace run_1` prints it as text."), "{text}");
    }

    /// Spec: D10
    #[test]
    fn asks_no_network_and_reads_nothing_as_markup() {
        let page = hostile();
        for text in ["http://", "https://", "url(", "@import", " src=", "innerHTML", "eval("] {
            assert!(!page.contains(text), "{text}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}
