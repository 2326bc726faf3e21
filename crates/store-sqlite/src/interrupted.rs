//! Open runs whose process is dead.

use std::collections::{BTreeMap, HashMap};

use backstop_event_log::LogError;
use layer0::Timestamp;
use layer0::id::RunId;
use sqlx::Row;

use crate::database::Database;
use crate::fault::Fault;
use crate::owner::OtherOwner;

/// The migration that added the last event and the owner to rows.
const SINCE: i64 = 13;

/// Running runs, each with the owner of its tree and the time of its last event.
const RUNNING: &str = "SELECT runs.run, coalesce(roots.owner, runs.owner) AS owner, events.at \
    FROM runs LEFT JOIN runs AS roots ON roots.run = runs.root JOIN events ON events.id = runs.last_event \
    WHERE runs.state = 'running' AND runs.run NOT GLOB 'sub_*'";

impl Database {
    /// Returns the runs whose process died while they were running, each with the time of its last event.
    ///
    /// Nothing is recorded about them; such a run can be resumed.
    ///
    /// # Errors
    ///
    /// [`LogError::Locked`], [`LogError::Closed`], [`LogError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn interrupted_runs(&self) -> Result<BTreeMap<RunId, Timestamp>, LogError> {
        let version: i64 = sqlx::query_scalar("PRAGMA user_version")
            .fetch_one(self.readers())
            .await
            .map_err(Fault::from)?;
        if version < SINCE {
            return Ok(BTreeMap::new());
        }
        let rows = sqlx::query(RUNNING).fetch_all(self.readers()).await.map_err(Fault::from)?;
        let mut known: HashMap<String, bool> = HashMap::new();
        let mut interrupted = BTreeMap::new();
        for row in rows {
            let run: String = row.try_get("run").map_err(Fault::from)?;
            let owner: Option<String> = row.try_get("owner").map_err(Fault::from)?;
            let is_alive = match owner {
                Some(owner) => *known.entry(owner).or_insert_with_key(|owner| self.is_alive(owner)),
                None => false,
            };
            if !is_alive {
                let at = row.try_get("at").map_err(Fault::from)?;
                interrupted.insert(run.into(), Timestamp::from_millis(at));
            }
        }
        Ok(interrupted)
    }

    /// Returns whether an owner is alive; `true` if that cannot be determined.
    pub(crate) fn is_alive(&self, owner: &str) -> bool {
        let own = self.owner().file();
        let is_own = self.is_in_memory() || own.is_some_and(|own| own.is_named(owner));
        is_own || matches!(self.owner().look(owner), Ok(OtherOwner::Alive) | Err(_))
    }
}
