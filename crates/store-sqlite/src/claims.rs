//! Claims of runs: rows name their owner.

use backstop_event_log::LogError;
use layer0::id::RunId;
use sqlx::{Row, SqliteConnection};

use crate::job::{ClaimRequest, Claiming};
use crate::job_error::JobError;
use crate::lost_tails;
use crate::rows::{to_i64, to_u64};

/// Runs in the tree of run `$1` whose owner is neither `$2` nor one of the dead owners `$3`.
macro_rules! others {
    () => {
        "FROM runs AS other WHERE (other.run = (SELECT coalesce(root, run) FROM runs WHERE run = $1) \
         OR other.root = (SELECT coalesce(root, run) FROM runs WHERE run = $1)) \
         AND other.owner <> $2 AND other.owner NOT IN (SELECT value FROM json_each($3)) "
    };
}

/// Claims a run for an owner, in a transaction, unless a run of its tree has another owner that is alive.
///
/// The run may be free, or have belonged to this process or to a dead owner. A writer of another process that wrote to
/// its descendants before is refused from then on.
pub(crate) async fn take(
    connection: &mut SqliteConnection,
    request: &ClaimRequest,
    owner: &str,
) -> Result<Claiming, JobError> {
    let ClaimRequest { run, dead, ends, accepts_loss } = request;
    let lost = lost_tails::check(connection, run, ends, false).await?;
    if let Some(tail) = lost.filter(|_| !accepts_loss) {
        return Ok(Claiming::LostTail(tail));
    }
    let dead = serde_json::to_string(dead).map_err(|error| LogError::Failed(error.into()));
    let dead = dead.map_err(JobError::Log)?;
    let taken = sqlx::query(concat!(
        "UPDATE runs SET epoch = epoch + 1, owner = CASE run WHEN $1 THEN $2 END \
         WHERE (run = $1 OR root = $1 AND owner IS NOT $2) AND NOT EXISTS (SELECT 1 ",
        others!(),
        ") RETURNING run = $1, epoch"
    ))
    .bind(run.as_str())
    .bind(owner)
    .bind(&*dead)
    .fetch_all(&mut *connection)
    .await?;
    for row in taken {
        if row.try_get(0)? {
            return Ok(Claiming::Given(to_u64(row.try_get(1)?), lost));
        }
    }
    let held: Option<String> =
        sqlx::query_scalar(concat!("SELECT other.owner ", others!(), "LIMIT 1"))
            .bind(run.as_str())
            .bind(owner)
            .bind(&*dead)
            .fetch_optional(connection)
            .await?;
    Ok(held.map_or(Claiming::NoRun, |owner| Claiming::Held(owner.into())))
}

/// Releases a run, in a transaction, unless it was claimed again. Without an epoch, any claim of this owner is
/// released.
pub(crate) async fn free(
    connection: &mut SqliteConnection,
    run: &RunId,
    owner: &str,
    epoch: Option<u64>,
) -> Result<(), JobError> {
    sqlx::query(
        "UPDATE runs SET owner = NULL WHERE run = $1 AND owner = $2 AND epoch = coalesce($3, epoch)",
    )
        .bind(run.as_str())
        .bind(owner)
        .bind(epoch.map(to_i64))
        .execute(connection)
        .await?;
    Ok(())
}

/// Returns the error of a claim that was not granted.
pub(crate) fn claim_error(run: &RunId, claiming: &Claiming) -> LogError {
    match claiming {
        Claiming::NoRun => LogError::NotFound(run.clone()),
        Claiming::LostTail(tail) => LogError::lost_tail(run.clone(), tail.seq),
        Claiming::Given(..) | Claiming::Held(_) => LogError::Claimed(run.clone()),
    }
}
