//! `backstop diff`

use std::process::ExitCode;

use event_log::{LogError, Trace, read_events};
use layer0::event::Event;
use layer0::id::RunId;
use serde_json::{Value, json};

use crate::args::DiffArgs;
use crate::exit::CliError;
use crate::{output, store};

/// How many events of each run are shown behind the place where they part.
const SHOWN: usize = 5;

pub(crate) async fn run(args: DiffArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let (one, other) = (RunId::from(args.one), RunId::from(args.other));
    let database =
        store::open_read_only(&chosen).await?.ok_or_else(|| LogError::NotFound(one.clone()))?;
    let read = async {
        Ok::<_, LogError>((
            read_events(&database.log(), &one).await?,
            read_events(&database.log(), &other).await?,
        ))
    };
    let read = read.await;
    database.close().await;
    let ((first, events), (second, others)) = read?;
    let same = events.iter().zip(&others).take_while(|(a, b)| compared(a) == compared(b)).count();
    let part = (same < events.len().max(others.len())).then_some(same + 1);
    if args.json {
        let rest = |events: &[Event]| events.get(same).cloned();
        output::json(&json!({
            "runs": [one, other], "same": same, "parts_at": part,
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

/// Returns what makes two events the same: type and data, without how long things took.
fn compared(event: &Event) -> Value {
    let mut kind = serde_json::to_value(&event.kind).unwrap_or_default();
    if let Some(data) = kind.as_object_mut() {
        data.remove("duration_ms");
    }
    json!([event.kind.event_type(), kind])
}
