//! Data in events that is looked up by other keys than the run.

use backstop_event_log::{Batch, LogError};
use layer0::event::EventKind;
use layer0::id::{RunId, SessionId};
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::rows::to_i64;
use crate::text::encode_text;

/// The types of events with such data.
const TYPES: [&str; 8] = [
    "behavior.failed",
    "run.started",
    "run.forked",
    "run.resumed",
    "error.stored",
    "result.stored",
    "model.attempted",
    "tool.resolved",
];

/// The data from the events of a batch.
#[derive(Debug, Default)]
pub(crate) struct BatchNotes {
    /// The run at the head of the run's callers, if that is another run.
    pub(crate) root: Option<RunId>,
    /// The run that its first event follows.
    pub(crate) earlier: Option<RunId>,
    /// Digest of its agent's definition, when it starts or continues under another definition.
    pub(crate) digest: Option<String>,
    /// The sessions from which the run's session has copies.
    ancestors: Vec<SessionId>,
    /// The runs that it was copied from.
    parents: Vec<RunId>,
    /// Ids of stored errors and results.
    refers: Vec<String>,
    /// Failed model attempts: seq, time, provider, code.
    attempts: Vec<(i64, i64, String, String)>,
    /// Calls that a person settled.
    settled: Vec<String>,
    /// Failures of behaviours: the run of the delivered event, and seq.
    failures: Vec<(String, i64)>,
}

impl BatchNotes {
    /// Reads the data from the events of a batch; an event that cannot be decoded is skipped.
    pub(crate) fn from_batch(batch: &Batch) -> Self {
        let mut notes = Self::default();
        for record in &batch.records {
            let kind = &*record.event_type;
            let Some(text) = record.payload.text().filter(|_| TYPES.contains(&kind)) else {
                continue;
            };
            if kind == "model.attempted" && text.contains(r#""code":null"#) {
                continue; // One that worked, as most did.
            }
            match EventKind::decode(kind, text) {
                Ok(EventKind::RunStarted(started)) => {
                    notes.earlier = started.follows.as_ref().map(|follows| follows.run.clone());
                    notes.digest = Some(encode_text(&started.agent.digest).into_owned());
                    if started.run.as_ref() == Some(&batch.run) {
                        notes.root = started.root.clone().filter(|root| *root != batch.run);
                    }
                    if started.session != batch.summary.session {
                        notes.ancestors.push(started.session.clone());
                    }
                }
                Ok(EventKind::RunResumed(resumed)) => {
                    if let Some(agent) = &resumed.agent {
                        notes.digest = Some(encode_text(&agent.digest).into_owned());
                    }
                }
                Ok(EventKind::RunForked(forked)) => notes.parents.push(forked.parent),
                Ok(EventKind::ErrorStored(error)) => {
                    notes.refers.push(encode_text(error.error_id.as_str()).into_owned());
                }
                Ok(EventKind::ResultStored(result)) => {
                    notes.refers.push(encode_text(result.result_id.as_str()).into_owned());
                }
                Ok(EventKind::ModelAttempted(attempted)) => {
                    if let Some(code) = attempted.code {
                        let (seq, at) = (to_i64(record.seq), record.at.as_millis());
                        let provider = &attempted.provider;
                        let code = code.as_str().to_owned();
                        notes.attempts.push((seq, at, encode_text(provider).into_owned(), code));
                    }
                }
                Ok(EventKind::ToolResolved(resolved)) => {
                    notes.settled.push(encode_text(resolved.call_id.as_str()).into_owned());
                }
                Ok(EventKind::BehaviorFailed(failed)) => {
                    let about = encode_text(failed.run.as_str()).into_owned();
                    notes.failures.push((about, to_i64(record.seq)));
                }
                _ => {}
            }
        }
        notes
    }

    /// Returns whether there is nothing to write apart from the events and the row of the run.
    pub(crate) const fn is_empty(&self) -> bool {
        self.ancestors.is_empty()
            && self.parents.is_empty()
            && self.refers.is_empty()
            && self.attempts.is_empty()
            && self.settled.is_empty()
            && self.failures.is_empty()
            && self.digest.is_none()
    }

    /// Writes the data, in the transaction of the append.
    pub(crate) async fn write(
        &self,
        connection: &mut PgConnection,
        batch: &Batch,
    ) -> Result<(), LogError> {
        let run = encode_text(batch.run.as_str());
        let session = encode_text(batch.summary.session.as_str());
        if let Some(digest) = self.digest.as_ref().filter(|_| batch.adopts()) {
            sqlx::query("UPDATE backstop.runs SET digest = $2, terms = $3 WHERE run = $1")
                .bind(&*run)
                .bind(digest)
                .bind(batch.summary.terms.alone().get())
                .execute(&mut *connection)
                .await
                .map_err(Fault::from)?;
        }
        if !self.ancestors.is_empty() || !self.parents.is_empty() {
            let ancestors: Vec<_> =
                self.ancestors.iter().map(|session| encode_text(session.as_str())).collect();
            let parents: Vec<_> =
                self.parents.iter().map(|run| encode_text(run.as_str())).collect();
            sqlx::query(
                "INSERT INTO backstop.lineage SELECT $1, ancestor FROM \
                 (SELECT unnest($2::text[]) AS ancestor UNION \
                  SELECT session FROM backstop.runs WHERE run = ANY($3)) AS copied \
                 WHERE ancestor <> $1 ON CONFLICT DO NOTHING",
            )
            .bind(&*session)
            .bind(ancestors)
            .bind(parents)
            .execute(&mut *connection)
            .await
            .map_err(Fault::from)?;
        }
        if !self.refers.is_empty() {
            sqlx::query(
                "INSERT INTO backstop.refers SELECT $1, unnest($2::text[]) ON CONFLICT DO NOTHING",
            )
            .bind(&*run)
            .bind(&self.refers)
            .execute(&mut *connection)
            .await
            .map_err(Fault::from)?;
        }
        for (seq, at, provider, code) in &self.attempts {
            sqlx::query(
                "INSERT INTO backstop.attempts SELECT id, $2, $3, $4, $5 FROM backstop.runs \
                 WHERE run = $1 ON CONFLICT DO NOTHING",
            )
            .bind(&*run)
            .bind(seq)
            .bind(at)
            .bind(provider)
            .bind(code)
            .execute(&mut *connection)
            .await
            .map_err(Fault::from)?;
        }
        for (about, seq) in &self.failures {
            sqlx::query(
                "INSERT INTO backstop.delivery_failures SELECT $2, id, $3 FROM backstop.runs \
                 WHERE run = $1 ON CONFLICT DO NOTHING",
            )
            .bind(&*run)
            .bind(about)
            .bind(seq)
            .execute(&mut *connection)
            .await
            .map_err(Fault::from)?;
        }
        if !self.settled.is_empty() {
            sqlx::query(
                "INSERT INTO backstop.settled SELECT $1, sha256(convert_to(call, 'UTF8')) \
                 FROM unnest($2::text[]) AS call ON CONFLICT DO NOTHING",
            )
            .bind(&*run)
            .bind(&self.settled)
            .execute(connection)
            .await
            .map_err(Fault::from)?;
        }
        Ok(())
    }
}
