//! Claims of runs: rows name their owner.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_event_log::{KnownEnds, LogError};
use layer0::event::LostTail;
use layer0::id::RunId;
use sqlx::{PgConnection, Row};

use crate::fault::Fault;
use crate::lost_tails;
use crate::rows::{to_i64, to_u64};
use crate::text::encode_text;
use crate::transact::TransactionWork;

/// The result of a claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claiming {
    /// Granted under this epoch, with the newest lost event of its record, if any.
    Given(u64, Option<LostTail>),
    /// Another owner has the run, or a run of its tree.
    Held(Arc<str>),
    /// Its record has lost its tail, up to this event.
    LostTail(LostTail),
    /// There is no such run.
    NoRun,
}

/// Maximum number of tries for a run that is released at the same moment.
const MOST_LOOKS: usize = 16;

/// Runs in the tree with root `$1` whose owner is neither `$2` nor one of the dead owners `$3`.
macro_rules! others {
    () => {
        "FROM backstop.runs AS other WHERE (other.run = $1 OR other.root = $1) \
         AND other.owner <> $2 AND other.owner <> ALL ($3) "
    };
}

/// Claims a run for an owner, unless a run of its tree has another owner that is not among the dead. A writer of
/// another process that wrote to its descendants before is refused from then on.
pub(crate) struct Take<'a> {
    pub(crate) run: &'a RunId,
    pub(crate) owner: &'a str,
    pub(crate) dead: &'a [Arc<str>],
    /// The newest events that this process knows to be acknowledged.
    pub(crate) ends: &'a KnownEnds,
    /// Whether it is claimed even if its record has lost its tail.
    pub(crate) accepts_loss: bool,
}

#[async_trait]
impl TransactionWork for Take<'_> {
    type Done = Claiming;
    type Error = LogError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<Claiming, LogError> {
        take(connection, self).await
    }
}

async fn take(
    connection: &mut PgConnection,
    Take { run, owner, dead, ends, accepts_loss }: &Take<'_>,
) -> Result<Claiming, LogError> {
    let id = *run;
    let run = encode_text(run.as_str());
    // The root is locked in its own statement: the next statement sees what others wrote before.
    let root: Option<String> =
        sqlx::query_scalar("SELECT coalesce(root, run) FROM backstop.runs WHERE run = $1")
            .bind(&*run)
            .fetch_optional(&mut *connection)
            .await
            .map_err(Fault::from)?;
    let Some(root) = root else { return Ok(Claiming::NoRun) };
    sqlx::query(
        "SELECT 1 FROM backstop.runs WHERE run = $1 OR run = $2 ORDER BY id FOR NO KEY UPDATE",
    )
    .bind(&*run)
    .bind(&root)
    .execute(&mut *connection)
    .await
    .map_err(Fault::from)?;
    let lost = lost_tails::check(connection, id, ends, false).await?;
    if let Some(tail) = lost.filter(|_| !accepts_loss) {
        return Ok(Claiming::LostTail(tail));
    }
    let dead: Vec<&str> = dead.iter().map(|owner| &**owner).collect();
    for _ in 0..MOST_LOOKS {
        if let Some(epoch) = try_take(connection, &root, owner, &dead, &run).await? {
            return Ok(Claiming::Given(epoch, lost));
        }
        let held: Option<String> =
            sqlx::query_scalar(concat!("SELECT other.owner ", others!(), "LIMIT 1"))
                .bind(&root)
                .bind(*owner)
                .bind(&dead)
                .fetch_optional(&mut *connection)
                .await
                .map_err(Fault::from)?;
        if let Some(owner) = held {
            return Ok(Claiming::Held(owner.into()));
        }
        // It was released between the two statements.
    }
    Ok(Claiming::NoRun)
}

/// Claims the run if no run of its tree has another live owner, and returns the epoch.
async fn try_take(
    connection: &mut PgConnection,
    root: &str,
    owner: &str,
    dead: &[&str],
    run: &str,
) -> Result<Option<u64>, LogError> {
    let taken = sqlx::query(concat!(
        "UPDATE backstop.runs AS runs SET epoch = epoch + 1, owner = CASE run WHEN $4 THEN $2 END \
         WHERE (run = $4 OR root = $4 AND owner IS DISTINCT FROM $2) AND NOT EXISTS (SELECT 1 ",
        others!(),
        ") RETURNING run = $4 AS is_it, epoch"
    ))
    .bind(root)
    .bind(owner)
    .bind(dead)
    .bind(run)
    .fetch_all(connection)
    .await
    .map_err(Fault::from)?;
    for row in taken {
        if row.try_get("is_it").map_err(Fault::from)? {
            return Ok(Some(to_u64(row.try_get("epoch").map_err(Fault::from)?)));
        }
    }
    Ok(None)
}

/// Releases runs, except those that were claimed again. Without an epoch, any claim of this owner is released.
pub(crate) async fn free(
    connection: &mut PgConnection,
    runs: &[(RunId, Option<u64>)],
    owner: &str,
) -> Result<(), LogError> {
    let (runs, epochs): (Vec<_>, Vec<_>) =
        runs.iter().map(|(run, epoch)| (encode_text(run.as_str()), epoch.map(to_i64))).unzip();
    sqlx::query(
        "UPDATE backstop.runs AS runs SET owner = NULL FROM unnest($1::text[], $2::bigint[]) \
         AS freed (run, epoch) WHERE runs.run = freed.run AND runs.owner = $3 \
         AND runs.epoch = coalesce(freed.epoch, runs.epoch)",
    )
    .bind(runs)
    .bind(epochs)
    .bind(owner)
    .execute(connection)
    .await
    .map_err(Fault::from)?;
    Ok(())
}
