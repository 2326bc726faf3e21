//! Messages about runs that no worker works on.

use backstop_event_log::LogError;
use backstop_store_postgres::{Queue, StrandedRun, UnservedQueue};

use crate::output::{format_count, note};

/// Returns messages about the runs of a queue that no live worker resumes or takes.
pub(crate) async fn all(queue: &Queue) -> Result<Vec<String>, LogError> {
    let stranded_runs = queue.list_stranded().await?;
    let unserved_queues = queue.list_unserved().await?;
    let stranded = stranded_runs.iter().map(describe_stranded_run);
    Ok(stranded.chain(unserved_queues.iter().map(describe_unserved_queue)).collect())
}

/// Prints a note if no live worker takes an enqueued run. Without any worker there is no note, because one may start
/// later.
pub(crate) async fn note_queued(queue: &Queue, name: &str, agent: &str) -> Result<(), LogError> {
    if let Some(waiting) = queue.unserved_by(name, agent).await?
        && waiting.workers > 0
    {
        note(&match &waiting.agent {
            None => format!("none of the workers takes from queue `{name}`"),
            Some(agent) => {
                format!("none of the workers that take from queue `{name}` has `{agent}`")
            }
        });
    }
    Ok(())
}

fn describe_stranded_run(run: &StrandedRun) -> String {
    format!(
        "run {} of `{}` is stranded: no worker has its agent as it was when the run began; start one with that \
         definition, or with --adopt",
        run.run, run.agent
    )
}

/// Returns a message about the waiting runs of a queue that no worker takes.
pub(crate) fn describe_unserved_queue(waiting: &UnservedQueue) -> String {
    let (queue, runs) = (&waiting.queue, format_count(waiting.runs, "run"));
    match &waiting.agent {
        None => format!("queue `{queue}` holds {runs} and no worker takes from it"),
        Some(agent) => {
            format!(
                "queue `{queue}` holds {runs} of `{agent}`, which no worker that takes from it has"
            )
        }
    }
}
