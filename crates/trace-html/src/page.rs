//! The page and the data in it.

use std::collections::BTreeMap;

use error_store::{ErrorRecord, readable};
use event_log::{RunSummary, describe};
use layer0::code::CATALOGUE;
use layer0::event::Event;
use serde::Serialize;

const TEMPLATE: &str = include_str!("../page/template.html");
const STYLE: &str = include_str!("../page/style.css");
/// Folds the events into turns and calls, then shows them.
const SCRIPT: [&str; 4] = [
    include_str!("../page/fold.js"),
    include_str!("../page/element.js"),
    include_str!("../page/timeline.js"),
    include_str!("../page/show.js"),
];

/// What the script reads.
#[derive(Serialize)]
struct Data<'a> {
    summary: &'a RunSummary,
    events: &'a [Event],
    /// One line per event, as `backstop trace` prints it.
    lines: Vec<String>,
    errors: Vec<Stored<'a>>,
    codes: BTreeMap<&'static str, Explained>,
}

/// A stored error, with the text that the model could ask for.
#[derive(Serialize)]
struct Stored<'a> {
    id: &'a str,
    text: String,
    /// How often it was seen in the session.
    occurrences: u64,
}

/// What a code means and what to do about it.
#[derive(Serialize)]
struct Explained {
    meaning: &'static str,
    advice: &'static str,
}

/// Makes the page of a run from its events and the errors it stored.
///
/// The page is whole: style, script and data are in it. It grows with the record, by about the size
/// of its JSON.
#[must_use]
pub fn page(summary: &RunSummary, events: &[Event], errors: &[ErrorRecord]) -> String {
    let codes = CATALOGUE
        .iter()
        .map(|entry| (entry.code, Explained { meaning: entry.meaning, advice: entry.advice }))
        .collect();
    let data = Data {
        summary,
        events,
        lines: events.iter().map(|event| describe(&event.kind)).collect(),
        errors: errors
            .iter()
            .map(|record| Stored {
                id: record.id.as_str(),
                text: readable(&record.raw),
                occurrences: record.occurrences,
            })
            .collect(),
        codes,
    };
    let json = serde_json::to_string(&data).expect("the keys of events and errors are strings");
    // The data goes in last, so that no placeholder in it is filled.
    TEMPLATE
        .replacen("{{style}}", STYLE, 1)
        .replacen("{{script}}", &SCRIPT.concat(), 1)
        .replacen("{{data}}", &inert(&json), 1)
}

/// Keeps JSON from ending or opening an element: `<` only ever stands in its strings.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c")
}
