//! `backstop export`

use std::path::Path;
use std::process::ExitCode;

use backstop_event_log::read_records;
use layer0::event::Hash;
use layer0::id::RunId;
use serde::Serialize;

use crate::args::ExportArgs;
use crate::exit::CliError;
use crate::{ids, output, page, store};

/// Name of the format in the first line of an export: that of docs/record-format.md.
const FORMAT: &str = "backstop-record/1";

/// The first line of an export.
#[derive(Serialize)]
struct Header<'a> {
    format: &'static str,
    run: &'a RunId,
    events: u64,
    head: Hash,
    key_id: Option<&'a str>,
}

/// The output of `--json` for a written file.
#[derive(Serialize)]
struct ExportedFile<'a> {
    #[serde(flatten)]
    header: Header<'a>,
    file: &'a Path,
}

pub(crate) async fn run(args: ExportArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let database = store::open_read_only(&chosen).await?;
    let database = database.ok_or_else(|| CliError::no_run(args.run.as_str().into()))?;
    let exported = async {
        let records = ids::records(&database, &args.run).await?;
        let run = ids::one(&args.run, &records)?.clone();
        let (summary, records) = read_records(&*database.log(), &run).await?;
        let internal = |error| CliError::internal("exporting", error);
        let header = Header {
            format: FORMAT,
            run: &run,
            events: summary.last_seq,
            head: summary.head,
            key_id: summary.key_id.as_deref(),
        };
        let mut lines = vec![serde_json::to_string(&header).map_err(internal)?];
        for record in &records {
            lines.push(record.envelope(&run).map_err(internal)?);
        }
        let Some(file) = &args.file else {
            return lines.iter().try_for_each(|line| output::json_line(line));
        };
        page::write(file, &(lines.join("\n") + "\n"), &database)?;
        if args.json {
            return output::json(&ExportedFile { header, file });
        }
        output::note(&format!("written: {}", file.display()));
        Ok(())
    };
    let exported = exported.await;
    database.close().await;
    exported.map(|()| ExitCode::SUCCESS)
}
