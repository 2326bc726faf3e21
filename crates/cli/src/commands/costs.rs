//! `backstop costs`

mod report;
mod runs;

use std::process::ExitCode;

use serde::Serialize;

use self::report::{CostReport, CostSum};
use crate::args::{CostGrouping, CostsArgs};
use crate::exit::CliError;
use crate::output;
use crate::store;

pub(crate) async fn run(args: CostsArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let report = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let (log, time) = (database.log(), &args.time);
            let report = CostReport::read(&*log, &args.by, time.since, time.until).await;
            database.close().await;
            report?
        }
        None => CostReport::default(),
    };
    if args.json {
        for (group, sum) in report.rows(&args.by) {
            output::json(&CostLine::new(Some(group), sum))?;
        }
        output::json(&CostLine::new(None, &report.total))?;
    } else if report.total.model_attempts == 0 {
        let fit = if args.time.since.or(args.time.until).is_some() { " that fit" } else { "" };
        output::note(&format!("no model was asked{fit} in {}", chosen.describe()));
    } else {
        table(&report, &args.by)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(report: &CostReport, by: &CostGrouping) -> Result<(), CliError> {
    let group = match by {
        CostGrouping::Day => "DAY".to_owned(),
        CostGrouping::Agent => "AGENT".to_owned(),
        CostGrouping::Model => "MODEL".to_owned(),
        CostGrouping::Label(key) => key.to_uppercase(),
    };
    let rows = report.rows(by).into_iter().map(|(group, sum)| row(group, sum));
    let rows: Vec<Vec<String>> = rows.chain([row("total", &report.total)]).collect();
    let header = [group.as_str(), "RUNS", "ATTEMPTS", "INPUT", "OUTPUT", "SPENT"];
    output::table(&header, &rows)?;
    if report.total.is_estimated {
        output::note("~ holds token counts that were estimated: the provider did not report them");
    }
    if report.total.unpriced > 0 {
        output::note("> holds attempts without a price: set `price` in [model] of the agent file");
    }
    Ok(())
}

fn row(group: &str, sum: &CostSum) -> Vec<String> {
    let partial = if sum.unpriced > 0 { ">" } else { "" };
    let estimated = if sum.is_estimated { "~" } else { "" };
    let cost = sum
        .cost_usd()
        .map_or_else(|| "-".to_owned(), |cost| format!("{partial}{estimated}${cost:.4}"));
    let group = if group.is_empty() { "-" } else { group };
    vec![
        group.to_owned(),
        sum.runs().to_string(),
        sum.model_attempts.to_string(),
        sum.input_tokens.to_string(),
        sum.output_tokens.to_string(),
        cost,
    ]
}

/// The costs of one group, or of all, for one line of JSON.
#[derive(Serialize)]
struct CostLine<'a> {
    group: Option<&'a str>,
    runs: usize,
    model_attempts: u64,
    input_tokens: u64,
    output_tokens: u64,
    cost_usd: Option<f64>,
    #[serde(skip_serializing_if = "is_false")]
    estimated: bool,
    /// Attempts whose cost is not in `cost_usd`.
    #[serde(skip_serializing_if = "is_zero")]
    unpriced_attempts: u64,
}

impl<'a> CostLine<'a> {
    fn new(group: Option<&'a str>, sum: &CostSum) -> Self {
        Self {
            group,
            runs: sum.runs(),
            model_attempts: sum.model_attempts,
            input_tokens: sum.input_tokens,
            output_tokens: sum.output_tokens,
            cost_usd: sum.cost_usd(),
            estimated: sum.is_estimated,
            unpriced_attempts: sum.unpriced,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
