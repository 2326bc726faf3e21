//! Selection and opening of a store.

mod database;

use std::path::{Path, PathBuf};
use std::time::Duration;

use backstop_config::{ConfigError, DurabilityName, StoreTable};
use backstop_error_store::Retention;
use backstop_event_log::{LogKey, StoreUrl};
use backstop_retention::StoreRetention;
use backstop_store_postgres::Options;
use backstop_store_sqlite::{Database as SqliteDatabase, Durability, OpenOptions};
use etcetera::BaseStrategy;

use crate::args::StoreArgs;
use crate::exit::CliError;
use crate::folder::parent_folder;
use crate::{output, secrets};

pub(crate) use database::AnyDatabase;

/// Variable that names the store if neither command line nor agent file does.
const VARIABLE: &str = "BACKSTOP_STORE";

/// Variable that holds the key of the log.
const KEY_VARIABLE: &str = "BACKSTOP_LOG_KEY";

/// A selected store, and whether the user named it.
pub(crate) struct Chosen {
    pub(crate) url: StoreUrl,
    named: bool,
}

impl Chosen {
    /// Returns whether the store outlives the command.
    pub(crate) fn is_kept(&self) -> bool {
        self.url != StoreUrl::SqliteMemory
    }

    /// Returns the URL for a message about an empty list, with a note if there is no such file yet; the
    /// platform's data folder is no mistake of the user.
    pub(crate) fn describe(&self) -> String {
        match &self.url {
            StoreUrl::Sqlite(path)
                if matches!(path.try_exists(), Ok(false))
                    && !default_path().is_ok_and(|default| default == *path) =>
            {
                format!("{}, which is no file yet: the first run makes it", self.url)
            }
            url => url.to_string(),
        }
    }

    /// Returns the flag that makes another command use the same store.
    pub(crate) fn flag(&self) -> String {
        match self.url.to_string() {
            _ if !self.named => String::new(),
            url => format!(" --store {}", output::quote_for_shell(&url)),
        }
    }
}

/// The source of a store's URL.
pub(crate) enum StoreUrlSource<'a> {
    /// This agent file.
    File(&'a Path),
    /// This flag of the command line.
    Flag(&'static str),
    /// The environment.
    Variable,
}

/// Reads the URL of a store.
pub(crate) fn parse(url: &str, origin: &StoreUrlSource<'_>) -> Result<StoreUrl, CliError> {
    secrets::hold(secrets::in_url(url));
    url.parse::<StoreUrl>().map_err(|error| {
        let meant = suggest_url(url);
        match origin {
            StoreUrlSource::File(path) => ConfigError::new(*path, error.to_string())
                .with_hint(format!("write `url = \"{meant}\"` into [store]"))
                .into(),
            StoreUrlSource::Flag(flag) => CliError::usage(format!("{flag}: {error}"))
                .with_hint(format!("write `{flag} {}`", output::quote_for_shell(&meant))),
            StoreUrlSource::Variable => {
                CliError::usage(format!("{VARIABLE}: {error}")).with_hint(format!(
                    "run `export {VARIABLE}={}`, or `unset {VARIABLE}`",
                    output::quote_for_shell(&meant)
                ))
            }
        }
    })
}

/// Returns a valid URL near an invalid one, without parts that could hold a password.
fn suggest_url(url: &str) -> String {
    let path = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"));
    let path = path.or_else(|| url.strip_prefix("file:")).unwrap_or(url);
    // Only `?network_fs=1` is a parameter.
    let path = path.split('?').next().unwrap_or_default();
    match path.is_empty() || path.contains([':', '@']) {
        true => "sqlite:backstop.db".to_owned(),
        false => format!("sqlite:{path}"),
    }
}

/// Chooses the store: that of the command line, else of the agent file at this path (relative to its folder), else of
/// the environment, else the platform's data folder.
pub(crate) fn choose(args: &StoreArgs, file: Option<(&str, &Path)>) -> Result<Chosen, CliError> {
    if let Some(url) = &args.store {
        return Ok(Chosen { url: parse(url, &StoreUrlSource::Flag("--store"))?, named: true });
    }
    if let Some((url, path)) = file {
        let url = parse(url, &StoreUrlSource::File(path))?.below(parent_folder(path));
        return Ok(Chosen { url, named: true });
    }
    if let Ok(url) = std::env::var(VARIABLE) {
        // Later commands read the variable too, so they need no flag.
        return Ok(Chosen { url: parse(&url, &StoreUrlSource::Variable)?, named: false });
    }
    Ok(Chosen { url: StoreUrl::Sqlite(default_path()?), named: false })
}

fn default_path() -> Result<PathBuf, CliError> {
    let strategy = etcetera::choose_base_strategy().map_err(|error| {
        CliError::usage(error)
            .with_hint(format!("name a store with --store sqlite:PATH or {VARIABLE}"))
    })?;
    Ok(strategy.data_dir().join("backstop").join("backstop.db"))
}

/// Opens a store for writes, with the settings of an agent file.
pub(crate) async fn open(chosen: &Chosen, table: &StoreTable) -> Result<AnyDatabase, CliError> {
    let durability = match (&chosen.url, table.durability) {
        (StoreUrl::SqliteMemory, _) => {
            return add_log_key(AnyDatabase::Sqlite(SqliteDatabase::in_memory().await?));
        }
        (_, DurabilityName::Memory) => {
            return Err(CliError::usage("durability `memory` keeps no file")
                .with_hint("use it with url = \"sqlite::memory:\", or choose `normal` or `full`"));
        }
        (_, DurabilityName::Full) => Durability::Full,
        _ => Durability::Normal,
    };
    match &chosen.url {
        url @ (StoreUrl::Sqlite(path) | StoreUrl::SqliteOnNetwork(path)) => {
            let options = open_options(url).durability(durability).retention(retention(table));
            add_log_key(AnyDatabase::Sqlite(SqliteDatabase::open_with(path, options).await?))
        }
        StoreUrl::Postgres(url) => {
            let options = Options::new(url)?.retention(retention(table));
            postgres(backstop_store_postgres::Database::connect_with(options).await?)
        }
        url => Err(unknown(url)),
    }
}

/// Opens a shared database for writes. While its server is unreachable, appends are retried for `patience`.
pub(crate) async fn open_shared(
    chosen: &Chosen,
    table: &StoreTable,
    patience: Duration,
) -> Result<backstop_store_postgres::Database, CliError> {
    let options =
        Options::new(require_shared_url(chosen)?)?.retention(retention(table)).patience(patience);
    let database = backstop_store_postgres::Database::connect_with(options).await?;
    match postgres(database)? {
        AnyDatabase::Postgres(database) => Ok(database),
        AnyDatabase::Sqlite(_) => Err(unknown(&chosen.url)),
    }
}

/// Returns the URL of a shared database, or an error for another store.
fn require_shared_url(chosen: &Chosen) -> Result<&str, CliError> {
    match &chosen.url {
        StoreUrl::Postgres(url) => Ok(url),
        url => {
            Err(CliError::usage(format!("`{url}` has no queue: queue and workers need PostgreSQL"))
                .with_hint(
                    "name a database with --store postgres://USER@HOST/DATABASE or BACKSTOP_STORE",
                ))
        }
    }
}

/// Returns a message about the number of connections that one process uses.
pub(crate) fn connections(most: u32) -> String {
    format!(
        "each worker, and each other process, uses up to {most} connections; a pooler in session mode holds \
         them for as long as the process lives, so its pool needs {most} for each"
    )
}

/// Checks that the store is a shared database, without opening it.
pub(crate) fn check_shared(chosen: &Chosen) -> Result<(), CliError> {
    Options::new(require_shared_url(chosen)?)?;
    Ok(())
}

/// Checks the URL of a store, without opening it.
pub(crate) fn check(url: &StoreUrl) -> Result<(), CliError> {
    match url {
        StoreUrl::Postgres(url) => Ok(Options::new(url).map(drop)?),
        _ => Ok(()),
    }
}

/// Returns the retention that an agent file sets.
fn retention(table: &StoreTable) -> StoreRetention {
    // A file without a retention keeps that of another file.
    let retention: StoreRetention = match table.error_retention_days {
        Some(number) => Retention::default().max_age(days(number)).into(),
        None => StoreRetention::default(),
    };
    match table.run_retention_days {
        Some(number) => retention.runs(days(number)),
        None => retention,
    }
}

fn postgres(database: backstop_store_postgres::Database) -> Result<AnyDatabase, CliError> {
    add_log_key(AnyDatabase::Postgres(database))
}

fn unknown(url: &StoreUrl) -> CliError {
    CliError::usage(format!("store `{url}` is of no kind that this command knows"))
}

/// Returns the duration of a number of days.
pub(crate) fn days(number: u32) -> Duration {
    Duration::from_secs(u64::from(number) * 24 * 60 * 60)
}

/// Opens an existing store for writes; `None` if the user named none and nothing was recorded yet.
pub(crate) async fn open_existing(chosen: &Chosen) -> Result<Option<AnyDatabase>, CliError> {
    let Some(database) = open_read_only(chosen).await? else { return Ok(None) };
    database.close().await;
    match &chosen.url {
        url @ (StoreUrl::Sqlite(path) | StoreUrl::SqliteOnNetwork(path)) => {
            // A person's decision must survive a power loss before it is acknowledged.
            let options = open_options(url).durability(Durability::Full);
            let opened = SqliteDatabase::open_with(path, options).await?;
            add_log_key(AnyDatabase::Sqlite(opened)).map(Some)
        }
        StoreUrl::Postgres(url) => {
            postgres(backstop_store_postgres::Database::connect(url).await?).map(Some)
        }
        url => Err(unknown(url)),
    }
}

/// Chooses the store of a URL after a flag.
pub(crate) fn choose_from_flag(url: &str, flag: &'static str) -> Result<Chosen, CliError> {
    Ok(Chosen { url: parse(url, &StoreUrlSource::Flag(flag))?, named: true })
}

/// Opens a store for reads; `None` if the user named none and nothing was recorded yet.
pub(crate) async fn open_read_only(chosen: &Chosen) -> Result<Option<AnyDatabase>, CliError> {
    match &chosen.url {
        // A path that may not be looked at is an error of opening it.
        StoreUrl::Sqlite(path) if !chosen.named && matches!(path.try_exists(), Ok(false)) => {
            Ok(None)
        }
        url @ (StoreUrl::Sqlite(path) | StoreUrl::SqliteOnNetwork(path)) => {
            let opened = SqliteDatabase::open_read_only_with(path, open_options(url)).await?;
            add_log_key(AnyDatabase::Sqlite(opened)).map(Some)
        }
        StoreUrl::Postgres(url) => {
            let opened = backstop_store_postgres::Database::connect_read_only(Options::new(url)?);
            postgres(opened.await?).map(Some)
        }
        StoreUrl::SqliteMemory => Ok(None),
        url => Err(unknown(url)),
    }
}

/// Returns the options to open a file; its URL may allow a network file system.
pub(crate) fn open_options(url: &StoreUrl) -> OpenOptions {
    OpenOptions::new().network_fs(matches!(url, StoreUrl::SqliteOnNetwork(_)))
}

/// Gives a store the key of its log, if there is one.
fn add_log_key(database: AnyDatabase) -> Result<AnyDatabase, CliError> {
    match log_key() {
        None => Ok(database),
        Some(key) => match LogKey::new(key) {
            Some(key) => Ok(database.with_log_key(key)),
            None => Err(CliError::usage(format!("{KEY_VARIABLE} is empty"))
                .with_hint("give it 32 random bytes in hex, or leave it out")),
        },
    }
}

/// Returns the key of the log from the environment.
fn log_key() -> Option<String> {
    std::env::var_os(KEY_VARIABLE).map(|key| key.to_string_lossy().into_owned())
}
