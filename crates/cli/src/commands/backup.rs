//! `backstop backup`

use std::process::ExitCode;

use backstop_event_log::StoreUrl;
use backstop_store_sqlite::{BackupError, OpenError};
use serde_json::json;

use crate::args::BackupArgs;
use crate::exit::CliError;
use crate::{output, store};

pub(crate) async fn run(args: BackupArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let Some(database) = store::open_read_only(&chosen).await? else {
        return Err(match chosen.url {
            StoreUrl::Sqlite(path) | StoreUrl::SqliteOnNetwork(path) => {
                OpenError::Missing(path).into()
            }
            url => CliError::usage(format!("store `{url}` has nothing to copy"))
                .with_hint("name another store with --store URL"),
        });
    };
    let copied = database.backup(&args.file).await;
    database.close().await;
    let bytes = copied??;
    if args.json {
        output::json(&json!({ "file": args.file, "bytes": bytes }))?;
    } else {
        output::line(&format!("{}: {bytes} bytes", args.file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl From<BackupError> for CliError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Exists(_) => Self::usage(error).with_hint("name a file that is not there"),
            BackupError::OwnFile(_) => Self::usage(error).with_hint("name another file"),
            BackupError::File { .. } => Self::usage(error)
                .with_hint("name a file in a folder that exists and that you may write to"),
            error => Self::storage(error),
        }
    }
}
