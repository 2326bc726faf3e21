//! `backstop errors stats --by …`: errors of tools and failed attempts at models in one table.

use std::collections::BTreeMap;
use std::process::ExitCode;

use backstop_error_store::{CountBy, ErrorCount};
use backstop_event_log::FailedAttempts;
use serde_json::json;

use super::which::ErrorSelection;
use crate::args::Grouping;
use crate::exit::CliError;
use crate::output;
use crate::store::{self, Chosen};

/// The counts of one day, tool or code.
#[derive(Default)]
struct GroupCounts {
    errors: u64,
    occurrences: u64,
    chars_kept: u64,
    failed_attempts: u64,
}

pub(super) async fn print(
    chosen: &Chosen,
    which: &ErrorSelection,
    by: Grouping,
    limit: u32,
    json: bool,
) -> Result<ExitCode, CliError> {
    let (errors, attempts) = match store::open_read_only(chosen).await? {
        Some(database) => {
            let log = database.log();
            let counted = async {
                let errors = database.errors().count(which.errors(&*log).await?, by.into()).await?;
                let attempts = match which.attempts(&*log).await? {
                    Some(filter) => log.failed_attempts(filter).await?,
                    None => Vec::new(),
                };
                Ok::<_, CliError>((errors, attempts))
            };
            let counted = counted.await;
            database.close().await;
            counted?
        }
        None => (Vec::new(), Vec::new()),
    };
    let mut rows: Vec<(String, GroupCounts)> =
        merge_counts(errors, &attempts, by).into_iter().collect();
    if by != Grouping::Day {
        // The sort is stable: rows with equal counts stay in the order of their names.
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.occurrences + row.failed_attempts));
    }
    rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let (name, header) = match by {
        Grouping::Code => ("code", "CODE"),
        Grouping::Day => ("day", "DAY"),
        Grouping::Tool => ("tool", "TOOL OR PROVIDER"),
    };
    if json {
        return rows
            .iter()
            .try_for_each(|(key, row)| {
                output::json(&json!({
                    name: key, "errors": row.errors, "occurrences": row.occurrences,
                    "chars_kept": row.chars_kept, "failed_attempts": row.failed_attempts,
                }))
            })
            .map(|()| ExitCode::SUCCESS);
    }
    if rows.is_empty() {
        output::note(&which.none());
        return Ok(ExitCode::SUCCESS);
    }
    let cells = |(key, row): &(String, GroupCounts)| {
        let numbers = [row.errors, row.occurrences, row.failed_attempts, row.chars_kept];
        [key.clone()].into_iter().chain(numbers.map(|number| number.to_string())).collect()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    output::table(&[header, "TOOL ERRORS", "SEEN", "MODEL ATTEMPTS", "CHARS KEPT"], &rows)?;
    Ok(ExitCode::SUCCESS)
}

/// Merges the counts by key.
fn merge_counts(
    errors: Vec<ErrorCount>,
    attempts: &[FailedAttempts],
    by: Grouping,
) -> BTreeMap<String, GroupCounts> {
    let mut rows: BTreeMap<String, GroupCounts> = BTreeMap::new();
    for count in errors {
        let row = rows.entry(count.key).or_default();
        (row.errors, row.occurrences) = (count.errors, count.occurrences);
        row.chars_kept = count.chars_kept;
    }
    for failed in attempts {
        let key = match by {
            Grouping::Code => failed.code.to_string(),
            Grouping::Day => failed.day.date(),
            Grouping::Tool => format!("model {}", failed.provider),
        };
        rows.entry(key).or_default().failed_attempts += failed.attempts;
    }
    rows
}

impl From<Grouping> for CountBy {
    fn from(by: Grouping) -> Self {
        match by {
            Grouping::Code => Self::Code,
            Grouping::Day => Self::Day,
            Grouping::Tool => Self::Tool,
        }
    }
}
