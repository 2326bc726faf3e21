//! Each row of `faults.json` over each of its ways, with whole messages and in pieces.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backstop_tool::failed_text;
use layer0::failure::{Effect, Failure, Retry};
use libtest_mimic::Trial;
use serde::Deserialize;

use crate::server::Script;
use crate::support::{Faulty, Hasty, Way, call, checks, trial, until};

/// A fault of a server, and its outcome.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) transport: String,
    /// The time of the fault: `call` or `initialisation`.
    pub(crate) at: String,
    /// The operator's declaration about the tool, or the server's declaration about its output.
    pub(crate) declared: String,
    pub(crate) does: String,
    /// The code of the failure; `None` if the call succeeds.
    pub(crate) reason: Option<String>,
    /// The server's own code.
    pub(crate) code: Option<String>,
    /// The text for the model, or its beginning up to `*`.
    pub(crate) text: String,
    pub(crate) retry: Option<String>,
    pub(crate) effect: Option<String>,
    /// Number of tool calls that the server receives.
    pub(crate) requests: usize,
    /// Whether the server is started again, or a new session begins.
    pub(crate) restart: bool,
}

pub(crate) fn rows() -> Vec<Row> {
    serde_json::from_str(include_str!("../../faults.json")).unwrap()
}

pub(crate) fn trials() -> Vec<Trial> {
    let ways = |row: &Row| {
        let row = row.clone();
        Way::ALL.into_iter().filter_map(move |way| {
            let is_of = match way {
                Way::Stdio { .. } => row.transport != "http",
                Way::Http { .. } => row.transport != "stdio",
            };
            is_of.then(|| (row.clone(), way))
        })
    };
    let all: Vec<_> = rows().iter().flat_map(ways).collect();
    let trials = all.into_iter().map(|(row, way)| {
        let name = format!("row {} ({})", row.name, way.name());
        trial(name, move || check(row, way))
    });
    let mut trials: Vec<Trial> = trials.collect();
    trials.extend(checks![the_table_names_each_row_once]);
    trials
}

/// Each row is also a trial.
///
/// Spec: Q2, Q3, Q5
async fn the_table_names_each_row_once() {
    let rows = rows();
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names.len(), rows.len());
    for Row { name, reason, retry, effect, .. } in &rows {
        let is_failure = reason.is_some();
        assert_eq!((retry.is_some(), effect.is_some()), (is_failure, is_failure), "{name}");
    }
}

async fn check(row: Row, way: Way) {
    match row.at.as_str() {
        "initialisation" => check_initialisation(&row, way).await,
        _ => check_call(&row, way).await,
    }
}

async fn check_initialisation(row: &Row, way: Way) {
    let (faulty, server) = Faulty::new(way, Script::faulty(&row.name));
    let hangs = row.name.starts_with("hangs");
    let server = if hangs { server.clock(Arc::new(Hasty(12))) } else { server };
    let error = server.connect().await.unwrap_err();
    same(row, &error.to_string());
    assert_eq!(facts(&error), expected(row), "{error:?}");
    assert_eq!(faulty.calls().len(), row.requests);
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

async fn check_call(row: &Row, way: Way) {
    let (faulty, server) = Faulty::new(way, Script::faulty(&row.name));
    let times_out = row.reason.as_deref() == Some("tool.timeout");
    let timeout = if times_out { Duration::from_secs(2) } else { Duration::from_secs(30) };
    let client = server.timeout(timeout).connect().await.unwrap();
    let origin = match row.declared.as_str() {
        "idempotent" => "repeat",
        "read_only" => "look",
        "output_schema" => "typed",
        _ => "act",
    };
    let (result, before) = match row.name.as_str() {
        "dies_before_call" => {
            assert!(call(&client, "act").await.is_ok());
            until(|| !client.is_connected()).await;
            (call(&client, "ok").await, 1)
        }
        "gone_before_call" => {
            let url = faulty.http().stop();
            let result = call(&client, origin).await;
            faulty.http().listen(&url);
            (result, 0)
        }
        _ => (call(&client, origin).await, 0),
    };
    match &result {
        Ok(output) => same(row, &output.as_string().unwrap()),
        Err(error) => {
            same(row, &failed_text(&format!("faulty__{origin}"), error));
            assert_eq!(error.author_code().map(|code| &**code), row.code.as_deref(), "{error:?}");
        }
    }
    let found = result.as_ref().err().map_or((None, None, None), facts);
    assert_eq!(found, expected(row), "{result:?}");
    assert_eq!(faulty.calls().len() - before, row.requests, "requests");
    // The next call succeeds.
    let next = match row.name.as_str() {
        // A server that dies repeatedly is left alone for a moment.
        "dies_in_every_call" | "dies_for_good" => {
            assert_eq!(faulty.starts() > 1, row.restart);
            return;
        }
        "dies_after_call" => {
            until(|| !client.is_connected()).await;
            call(&client, "ok").await
        }
        _ => call(&client, "ok").await,
    };
    assert_eq!(next.unwrap().as_string().unwrap(), "ok is done");
    assert_eq!(faulty.starts() > 1, row.restart, "started {} times", faulty.starts());
}

type Found = (Option<String>, Option<String>, Option<String>);

fn facts(error: &impl Failure) -> Found {
    let retry = match error.retry() {
        Retry::Never => "never",
        Retry::Backoff => "backoff",
        Retry::After(after) => {
            assert_eq!(after, Duration::from_secs(7));
            "after"
        }
    };
    let effect = match error.effect() {
        Effect::None => "none",
        Effect::Unknown => "unknown",
        Effect::Happened => "happened",
    };
    (Some(error.code().to_owned()), Some(retry.to_owned()), Some(effect.to_owned()))
}

fn expected(row: &Row) -> Found {
    (row.reason.clone(), row.retry.clone(), row.effect.clone())
}

#[track_caller]
fn same(row: &Row, text: &str) {
    match row.text.strip_suffix('*') {
        Some(beginning) => assert!(text.starts_with(beginning), "{text}"),
        None => assert_eq!(text, row.text),
    }
}
