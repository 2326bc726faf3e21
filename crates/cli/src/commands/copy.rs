//! `backstop copy`

use std::process::ExitCode;

use crate::store::Database;
use backstop_event_log::RunFilter;
use backstop_react::{CopyOutcome, Source, copy_run};
use layer0::id::RunId;
use serde_json::json;

use crate::args::CopyArgs;
use crate::exit::CliError;
use crate::output::counted;
use crate::{output, store};

pub(crate) async fn run(args: CopyArgs) -> Result<ExitCode, CliError> {
    let (from, to) = (store::named(&args.from, "--from")?, store::named(&args.to, "--to")?);
    let from = store::open_read_only(&from).await?.ok_or_else(|| {
        CliError::usage(format!("there is no store at {}", args.from))
            .with_hint("name one with --from, such as sqlite:backstop.db")
    })?;
    let copied = async {
        let to = store::open(&to, &Default::default()).await?;
        let copied = copy(&args, &from, &to).await;
        to.close().await;
        copied
    };
    let copied = copied.await;
    from.close().await;
    copied.map(|()| ExitCode::SUCCESS)
}

async fn copy(args: &CopyArgs, from: &Database, to: &Database) -> Result<(), CliError> {
    let mut filter = RunFilter::new();
    filter.session = args.session.clone().map(Into::into);
    filter.from = args.since;
    let mut runs = from.log().runs(filter).await?;
    // A run stands behind the one that it follows.
    runs.sort_by_key(|run| (run.started_at, run.run.clone()));
    let (source, target) = (Source::of(from), Source::of(to));
    let (mut done, mut known, mut open) = (0, 0, Vec::new());
    for run in &runs {
        match copy_run(&source, &target, &run.run).await? {
            CopyOutcome::Open => open.push(run.run.clone()),
            CopyOutcome::Known => known += 1,
            _ => done += 1,
        }
    }
    report(args, done, known, &open)
}

fn report(args: &CopyArgs, done: u64, known: u64, open: &[RunId]) -> Result<(), CliError> {
    if args.json {
        return output::json(&json!({ "copied": done, "known": known, "open": open }));
    }
    for run in open {
        output::note(&format!("{run} is open, and was left out: copy it once it is over"));
    }
    let known = match known {
        0 => String::new(),
        known => format!(", {} there already", counted(known, "run")),
    };
    output::line(&format!("{} copied{known}", counted(done, "run")))
}
