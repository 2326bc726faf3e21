//! `backstop diff`

use std::process::ExitCode;

use backstop_event_log::{Trace, read_events};
use layer0::event::Event;
use serde_json::{Value, json};

use crate::args::DiffArgs;
use crate::exit::CliError;
use crate::{ids, output, store};

/// Number of events of each run that are shown from the first difference.
const SHOWN: usize = 5;

pub(crate) async fn run(args: DiffArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let database = store::open_read_only(&chosen).await?;
    let database = database.ok_or_else(|| CliError::no_run(args.one.as_str().into()))?;
    let read = async {
        let one = ids::run(&database, &args.one).await?;
        let other = ids::run(&database, &args.other).await?;
        Ok::<_, CliError>((
            read_events(&*database.log(), &one).await?,
            read_events(&*database.log(), &other).await?,
        ))
    };
    let read = read.await;
    database.close().await;
    let ((first, events), (second, others)) = read?;
    let same = events
        .iter()
        .zip(&others)
        .take_while(|(a, b)| to_comparable(a) == to_comparable(b))
        .count();
    let part = (same < events.len().max(others.len())).then_some(same + 1);
    if args.json {
        let rest = |events: &[Event]| events.get(same).cloned();
        output::json(&json!({
            "runs": [first.run, second.run], "same": same, "parts_at": part,
            "events": [rest(&events), rest(&others)],
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    match part {
        None => output::line(&format!("the same {same} events"))?,
        Some(seq) => {
            output::line(&format!("the same up to event {same}; they part at {seq}"))?;
            for (events, summary) in [(&events, &first), (&others, &second)] {
                output::line("")?;
                output::line(summary.run.as_str())?;
                let mut trace = Trace::new();
                let lines = events.iter().map(|event| trace.line(event));
                lines.skip(same).take(SHOWN).try_for_each(|line| output::line(&line))?;
                if events.len() <= same {
                    output::line("  (it has no more events)")?;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the compared parts of an event: type and data, without durations.
fn to_comparable(event: &Event) -> Value {
    let mut kind = serde_json::to_value(&event.kind).unwrap_or_default();
    if let Some(data) = kind.as_object_mut() {
        data.remove("duration_ms");
    }
    json!([event.kind.event_type(), kind])
}
