//! What each provider says when it fails, and what Backstop makes of it.
//!
//! It stands in `docs/wire.md`; `BACKSTOP_WRITE_DOCS=1 cargo test -p backstop-tests wire_page` writes
//! the page anew.

use std::collections::{BTreeMap, BTreeSet};

use backstop::layer0::failure::{Failure, Retry};
use backstop_provider_http::Timeouts;
use backstop_testkit::failures::{self, Sample, Verdict};
use backstop_testkit::{ClosedPort, hello, send};
use serde_json::Value;

use crate::support::pages;
use crate::support::wires::{ENDPOINTS, Endpoint};

const HEAD: &str = "# What providers say, and what it is taken for

<!-- Written by `BACKSTOP_WRITE_DOCS=1 cargo test -p backstop-tests wire_page`. -->

Each line was sent by a server on loopback, whole and byte by byte, to the adapter, which streamed and
did not (`tests/contract/wire_page.rs`); the conditions are those of `crates/testkit/wire/conformance.json`, where `*` is any body and none.

- **becomes** is the [code](errors.md) of the failure, and the HTTP status where the failure keeps it.
  `stop: …` is an answer that ended for this reason; one that is `malformed` is asked for again by the
  loop.
- **again** says whether another try can help, and after which wait: that which the provider names, in
  milliseconds and with its source, or a backoff of our own.
- **inside a 200** says whether the same failure becomes the same where it comes after the status, in a
  stream or in the body; nothing stands there for what has a status alone.
";

/// What was made of a failure, and what in it named a wait.
type Made = (Verdict, BTreeSet<Option<String>>);

/// A condition, and all that was made of it.
struct Line {
    http: String,
    says: String,
    made: Vec<Made>,
    /// What was made of it inside a 200.
    inside: Vec<Verdict>,
}

/// Spec: P2, P3, P4, P5, P6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provider_failures_match_the_page() {
    let mut tables = Vec::new();
    let mut unmet: Vec<(String, String, String)> = failures::file().iter().map(named).collect();
    for endpoint in &ENDPOINTS {
        let mut lines = vec![refused(endpoint).await];
        for sample in (endpoint.failures)() {
            let verdict = sample.verdict(&endpoint.wire).await;
            add(&mut lines, endpoint, &sample, verdict);
            let row = &sample.row;
            unmet.retain(|(provider, http, condition)| {
                let met = *http == row.http.to_string() && *condition == row.condition;
                let carried = sample.inside.as_ref() == Some(condition);
                *provider != row.provider || !(met || carried)
            });
        }
        unmet.retain(|(provider, _, condition)| {
            provider != endpoint.name || lines.iter().all(|line| line.says != *condition)
        });
        tables.push((endpoint, lines));
    }
    let mut page = format!("{HEAD}\n## At a glance\n\n{}", glance(&tables));
    for (endpoint, lines) in &tables {
        page += &format!("\n## {}\n\n{}", endpoint.title, table(lines));
        let inside: BTreeSet<_> =
            (endpoint.failures)().into_iter().flat_map(|it| it.inside).collect();
        if !inside.is_empty() {
            page += "\nInside a 200 it is one of:\n\n";
        }
        for condition in inside {
            page += &format!("- `{condition}`\n");
        }
    }
    page += "\n## What no adapter meets\n\n";
    for (provider, http, condition) in unmet {
        page += &format!("- {provider}, {http}: `{condition}`\n");
    }
    page += &super::settings::section();
    pages::check("wire.md", &page);
}

/// Returns provider, status and condition of a row.
fn named(row: &Value) -> (String, String, String) {
    let text = |name: &str| match &row[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    (text("provider"), text("http"), text("match"))
}

/// Asks where nothing listens, which no server can do.
async fn refused(endpoint: &Endpoint) -> Line {
    let closed = ClosedPort::bind();
    let provider = (endpoint.wire.provider)(&closed.url(), Timeouts::default());
    let error = send(&*provider, &hello(), true).await.unwrap_err();
    let (code, retry, status) = (error.code(), error.retry(), error.status());
    let made = vec![(Verdict::Failed { code, retry, status }, BTreeSet::from([None]))];
    Line { http: "none".into(), says: "ECONNREFUSED".into(), made, inside: Vec::new() }
}

fn add(lines: &mut Vec<Line>, endpoint: &Endpoint, sample: &Sample, verdict: Verdict) {
    let row = &sample.row;
    // Endpoints that speak another's protocol are named.
    let says = match endpoint.name.starts_with(&row.provider) {
        true => sample.says.clone(),
        false => format!("{}: {}", row.provider, sample.says),
    };
    let http = row.http.to_string();
    let known = lines.iter().position(|line| line.http == http && line.says == says);
    let line = known.unwrap_or_else(|| {
        lines.push(Line { http, says, made: Vec::new(), inside: Vec::new() });
        lines.len() - 1
    });
    let line = &mut lines[line];
    if sample.reply.status == 200 && row.http != 200 {
        line.inside.push(verdict);
    } else if let Some((_, hints)) = line.made.iter_mut().find(|(made, _)| *made == verdict) {
        hints.insert(sample.hint.clone());
    } else {
        line.made.push((verdict, BTreeSet::from([sample.hint.clone()])));
    }
}

/// Returns a table of classes and the statuses that each provider says them with.
fn glance(tables: &[(&Endpoint, Vec<Line>)]) -> String {
    let mut classes: BTreeMap<String, (BTreeSet<&str>, Vec<BTreeSet<&str>>)> = BTreeMap::new();
    for (column, (_, lines)) in tables.iter().enumerate() {
        for line in lines {
            for (verdict, _) in &line.made {
                let empty = (BTreeSet::new(), vec![BTreeSet::new(); tables.len()]);
                let (again, statuses) = classes.entry(class(verdict)).or_insert(empty);
                again.insert(kind(verdict));
                statuses[column].insert(&line.http);
            }
        }
    }
    let titles: Vec<&str> = tables.iter().map(|(endpoint, _)| endpoint.title).collect();
    let mut text = format!("| becomes | again | {} |\n", titles.join(" | "));
    text += &format!("|---|---|{}\n", "---|".repeat(titles.len()));
    let joined = |set: &BTreeSet<&str>| set.iter().copied().collect::<Vec<_>>().join(", ");
    for (class, (again, statuses)) in classes {
        let statuses: Vec<String> = statuses.iter().map(joined).collect();
        text += &format!("| {class} | {} | {} |\n", joined(&again), statuses.join(" | "));
    }
    text
}

fn table(lines: &[Line]) -> String {
    let mut text =
        String::from("| HTTP | says | becomes | again | inside a 200 |\n|---|---|---|---|---|\n");
    for Line { http, says, made, inside } in lines {
        let cell = |parts: BTreeSet<String>| parts.into_iter().collect::<Vec<_>>().join("<br>");
        let becomes = cell(made.iter().map(|(verdict, _)| becomes(verdict)).collect());
        let again = cell(made.iter().map(|(verdict, hints)| again(verdict, hints)).collect());
        let inside = cell(inside.iter().map(|verdict| compared(verdict, made)).collect());
        let says = says.replace('|', "\\|");
        text += &format!("| {http} | `{says}` | {becomes} | {again} | {inside} |\n");
    }
    text
}

/// Says in what a failure inside a 200 differs from the same one with its status.
fn compared(inside: &Verdict, made: &[Made]) -> String {
    if !made.iter().any(|(verdict, _)| becomes(verdict) == becomes(inside)) {
        return format!("{}, {}", becomes(inside), kind(inside));
    }
    match made.iter().any(|(verdict, _)| kind(verdict) == kind(inside)) {
        true => "the same".into(),
        false => format!("the same, {}", kind(inside)),
    }
}

fn class(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Failed { code, .. } => format!("`{code}`"),
        Verdict::Stopped(reason) => format!("stop: `{}`", reason.as_str()),
    }
}

/// Returns the class, and the status that the failure keeps.
fn becomes(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Failed { status: Some(status), .. } => format!("{} {status}", class(verdict)),
        _ => class(verdict),
    }
}

/// Says whether another try can help, and when.
const fn kind(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Failed { retry: Retry::After(_), .. } => "after the wait it names",
        Verdict::Failed { retry: Retry::Backoff, .. } => "after a backoff",
        _ => "no",
    }
}

/// Says whether another try can help, when, and what said so.
fn again(verdict: &Verdict, hints: &BTreeSet<Option<String>>) -> String {
    let named: Vec<String> = hints.iter().flatten().map(|hint| format!("`{hint}`")).collect();
    let named = named.join(", ");
    match verdict {
        Verdict::Failed { retry: Retry::After(wait), .. } => {
            format!("after {} ms, from {named}", wait.as_millis())
        }
        _ if named.is_empty() => kind(verdict).to_owned(),
        _ => format!("{}, in spite of {named}", kind(verdict)),
    }
}
