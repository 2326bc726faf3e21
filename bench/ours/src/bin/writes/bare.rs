//! What an append costs in SQLite alone: bare rusqlite writes the same rows, ready made, in this thread.

use std::path::Path;

use backstop::event_log::{Batch, Log};
use backstop::layer0::event::Hash;
use backstop::{Database, Durability};
use rusqlite::{Connection, params};

use crate::plain::signed;

const ADD_EVENT: &str = "INSERT INTO events (prev, run_id, seq, at, type, actor, caused_by, schema, \
    hash, data, salt) SELECT last_event, id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 FROM runs \
    WHERE run = ?1 AND last_seq = ?2 - 1";
const MOVE_RUN: &str = "UPDATE runs SET last_seq = ?2, head = ?3, summary = ?4, \
    last_event = last_insert_rowid() WHERE run = ?1";

/// A connection with the schema and the pragmas of a database of Backstop's, in which a run has begun.
pub(crate) struct Bare(Connection);

impl Bare {
    /// Has Backstop begin the run with this append, so that its row is the same.
    pub(crate) async fn open(
        path: &Path,
        durability: Durability,
        first: Batch,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let database = Database::open(path, durability).await?;
        database.log().append(first).await?;
        database.close().await;
        let connection = Connection::open(path)?;
        let synchronous = if durability == Durability::Full { "FULL" } else { "NORMAL" };
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        // Closing freed the run; one that is written to has an owner.
        connection.execute("UPDATE runs SET owner = hex(randomblob(16))", [])?;
        Ok(Self(connection))
    }

    /// Appends events, a transaction each, with the summary of the run as JSON.
    pub(crate) fn append(&mut self, batches: &[(Batch, String)]) -> rusqlite::Result<()> {
        for (batch, summary) in batches {
            let transaction = self.0.transaction()?;
            let (run, record) = (batch.run.as_str(), &batch.records[0]);
            let added = transaction.prepare_cached(ADD_EVENT)?.execute(params![
                run,
                signed(record.seq),
                record.at.as_millis(),
                &*record.event_type,
                record.actor.as_str(),
                record.caused_by.map(signed),
                i64::from(record.schema),
                &record.hash.0[..],
                record.payload.text(),
                record.payload.salt().map(|salt| salt.0),
            ])?;
            assert_eq!(added, 1, "the run ends just before the event");
            let values = params![run, signed(record.seq), &record.hash.0[..], summary];
            transaction.prepare_cached(MOVE_RUN)?.execute(values)?;
            transaction.commit()?;
        }
        Ok(())
    }
}

/// Returns an append with the summary of its run as JSON, without what columns of their own have.
pub(crate) fn with_summary(batch: Batch) -> (Batch, String) {
    let mut rest = batch.summary.clone();
    (rest.last_seq, rest.head) = (0, Hash::default());
    let rest = serde_json::to_string(&rest).expect("a summary serialises");
    (batch, rest)
}
