//! `backstop state`

use std::process::ExitCode;

use crate::store::AnyDatabase;
use layer0::error::StateError;
use layer0::state::{Expected, StateQuery, StateWrite, Versioned};
use layer0::{JsonText, Timestamp};
use serde::Serialize;
use serde_json::json;

use crate::args::{
    StateArgs, StateCommand, StateGetArgs, StateListArgs, StateRmArgs, StateSetArgs, WhereArgs,
};
use crate::exit::{CliError, FAILED};
use crate::store::Chosen;
use crate::{output, store};

pub(crate) async fn run(args: StateArgs) -> Result<ExitCode, CliError> {
    match args.command {
        StateCommand::List(args) => list(args).await,
        StateCommand::Get(args) => get(args).await,
        StateCommand::Set(args) => set(args).await,
        StateCommand::Rm(args) => rm(args).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

fn choose_store(of: &WhereArgs) -> Result<Chosen, CliError> {
    store::choose(&of.store, None)
}

/// Returns the expected version; any version by default.
fn or_any_version(expect: Option<Expected>) -> Expected {
    expect.unwrap_or(Expected::Any)
}

async fn list(args: StateListArgs) -> Result<(), CliError> {
    let StateListArgs { prefix, after, limit, of } = args;
    let mut query = StateQuery::new(of.scope.clone()).prefix(prefix).limit(limit);
    query.after = after;
    let values = match store::open_read_only(&choose_store(&of)?).await? {
        Some(database) => {
            let values = database.state().list(query).await;
            database.close().await;
            values?
        }
        None => Vec::new(),
    };
    if of.json {
        return values.iter().try_for_each(|(key, found)| output::json(&state_line(key, found)));
    }
    if values.is_empty() {
        output::note("no values");
        return Ok(());
    }
    let row = |(key, found): &(String, Versioned)| {
        let until = found.expires_at.map(|at| at.to_string()).unwrap_or_default();
        let (version, written) = (found.version.to_string(), found.written_at.to_string());
        vec![key.clone(), version, written, until, found.value.to_string()]
    };
    let rows: Vec<Vec<String>> = values.iter().map(row).collect();
    output::table(&["KEY", "VERSION", "WRITTEN", "EXPIRES", "VALUE"], &rows)
}

/// A value as `--json` prints it.
#[derive(Serialize)]
struct StateLine<'a> {
    expires_at: Option<Timestamp>,
    key: &'a str,
    value: &'a JsonText,
    version: u64,
    written_at: Timestamp,
}

fn state_line<'a>(key: &'a str, found: &'a Versioned) -> StateLine<'a> {
    StateLine {
        expires_at: found.expires_at,
        key,
        value: &found.value,
        version: found.version,
        written_at: found.written_at,
    }
}

async fn get(args: StateGetArgs) -> Result<(), CliError> {
    let StateGetArgs { key, of } = args;
    let missing = || StateError::not_found(of.scope.to_string(), key.clone());
    let database = store::open_read_only(&choose_store(&of)?).await?.ok_or_else(missing)?;
    let found = database.state().read(&of.scope, &key).await;
    database.close().await;
    let found = found?.ok_or_else(missing)?;
    match of.json {
        true => output::json(&state_line(&key, &found)),
        false => output::json(&found.value),
    }
}

/// Opens the store for writes, and creates it if necessary.
async fn open(of: &WhereArgs) -> Result<AnyDatabase, CliError> {
    store::open(&choose_store(of)?, &Default::default()).await
}

async fn set(args: StateSetArgs) -> Result<(), CliError> {
    let StateSetArgs { key, value, expect, of } = args;
    let database = open(&of).await?;
    let write =
        StateWrite::new(of.scope.clone(), key.clone(), value).expecting(or_any_version(expect));
    let written = database.state().write(write).await;
    database.close().await;
    let version = written.map_err(refusal)?;
    match of.json {
        true => output::json(&json!({ "key": key, "version": version })),
        false => {
            output::note(&format!("{key} has version {version}"));
            Ok(())
        }
    }
}

/// Returns the error of a refused value. A value that is nested too deep is no failure of the store.
fn refusal(error: StateError) -> CliError {
    match error {
        StateError::Serialization(_) => CliError::from(error).with_code(FAILED),
        error => error.into(),
    }
}

async fn rm(args: StateRmArgs) -> Result<(), CliError> {
    let StateRmArgs { key, expect, of } = args;
    let missing = || StateError::not_found(of.scope.to_string(), key.clone());
    let database = store::open_existing(&choose_store(&of)?).await?.ok_or_else(missing)?;
    let removed = database.state().delete(&of.scope, &key, or_any_version(expect)).await;
    database.close().await;
    if !removed? {
        return Err(missing().into());
    }
    match of.json {
        true => output::json(&json!({ "key": key, "removed": true })),
        false => {
            output::note(&format!("{key} is removed"));
            Ok(())
        }
    }
}
