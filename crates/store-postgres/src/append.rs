//! Writes of the log; appends to several runs share a statement.

use std::sync::Arc;

use backstop_event_log::{
    Batch, Incarnation, LogError, LogKey, Payload, RunSummary, Terms, is_segment,
};
use layer0::JsonText;
use layer0::event::Hash;
use layer0::id::RunId;
use sqlx::postgres::PgArguments;
use sqlx::{Arguments, PgConnection, Row};

use crate::fault::Fault;
use crate::notes::BatchNotes;
use crate::rows::{to_i64, to_u64};
use crate::text::encode_text;
use crate::{admission, approvals, inbox, lost_tails, queued, seals, sessions, subscriptions};

/// Maximum number of events in a transaction, limited by the bits of their places.
pub(crate) const MAX_EVENTS: usize = 1 << 20;

/// An append with everything that can be prepared before the writer's turn.
pub(crate) struct Append {
    pub(crate) batch: Batch,
    pub(crate) notes: BatchNotes,
    /// The summary of the run, as JSON.
    summary: String,
    /// The incarnation of a new run.
    incarnation: Option<Incarnation>,
    /// The key that seals its row.
    key: Option<LogKey>,
    /// HMACs of the erased events in it, by seq.
    erasures: Vec<(u64, Hash)>,
}

/// The reason why the transaction did not write an append.
#[derive(Debug)]
pub(crate) enum AppendRefusal {
    /// The run does not end just before the append, or has a newer claim.
    NotAtItsEnd,
    /// Another error.
    By(LogError),
}

impl Append {
    /// Prepares a batch. If the run names this key, its row is sealed with it.
    pub(crate) fn new(
        batch: Batch,
        incarnation: Option<Incarnation>,
        key: Option<&LogKey>,
    ) -> Result<Self, LogError> {
        if batch.records.len() > MAX_EVENTS {
            let why = format!("an append has at most {MAX_EVENTS} events");
            return Err(LogError::Failed(why.into()));
        }
        let summary = serde_json::to_string(&without_columns(&batch.summary))
            .map_err(|error| LogError::Failed(error.into()))?;
        let notes = BatchNotes::from_batch(&batch);
        let is_named = |key: &&LogKey| batch.summary.key_id.as_deref() == Some(key.id());
        let key = key.filter(is_named).cloned();
        if let (true, Some(id), None) = (batch.is_import, &batch.summary.key_id, &key) {
            // The first event may require a sealed row.
            return Err(LogError::key_missing(id));
        }
        let erasures = key.as_ref().map_or_else(Vec::new, |key| batch.erasure_seals(key));
        Ok(Self { batch, notes, summary, incarnation, key, erasures })
    }

    pub(crate) const fn run(&self) -> &RunId {
        &self.batch.run
    }

    /// Returns the number of the run's last event before this append; 0 for a new run.
    pub(crate) fn before(&self) -> u64 {
        self.batch.first_seq().saturating_sub(1)
    }

    /// Returns whether it has no events, and only moves a subscription.
    pub(crate) const fn is_empty(&self) -> bool {
        self.batch.records.is_empty()
    }

    /// Returns the number and the hash of the run's last event after this append.
    pub(crate) const fn head(&self) -> (u64, Hash) {
        (self.batch.summary.last_seq, self.batch.summary.head)
    }

    /// Returns whether it starts its run.
    pub(crate) fn begins(&self) -> bool {
        self.before() == 0 && !self.batch.records.is_empty()
    }

    /// Returns whether it ends the run, which releases its claim.
    pub(crate) const fn frees(&self) -> bool {
        !self.batch.summary.is_open()
    }

    /// Returns whether it starts or reopens a run that is not a segment of a subscription.
    pub(crate) fn opens(&self) -> bool {
        !is_segment(&self.batch.run) && (self.begins() || self.batch.reopens())
    }

    /// Returns whether the run is a root run and not a segment of a subscription.
    fn is_root(&self) -> bool {
        self.batch.summary.parent.is_none() && !is_segment(&self.batch.run)
    }

    /// Returns whether it needs other statements than the one for its events.
    pub(crate) fn needs_more(&self) -> bool {
        self.begins()
            || self.key.is_some()
            || self.frees()
            || self.batch.reopens()
            || !self.batch.taken.is_empty()
            || self.batch.moves.is_some()
            || self.batch.accepts_loss()
            || !self.notes.is_empty()
            || self.batch.approval_changes().next().is_some()
    }

    pub(crate) fn conflict(&self) -> LogError {
        LogError::conflict(self.batch.run.clone(), self.before() + 1)
    }
}

/// Returns the summary without the parts that have their own columns, since it is written at every append.
fn without_columns(summary: &RunSummary) -> RunSummary {
    let mut rest = summary.clone();
    (rest.terms, rest.labels) = (Terms::default(), Arc::default());
    (rest.parent, rest.branch_of) = (None, None);
    (rest.last_seq, rest.head) = (0, Hash::default());
    rest
}

/// Writes appends to different runs in a transaction, and returns which of them were refused. A refused append has no
/// effect.
pub(crate) async fn write(
    connection: &mut PgConnection,
    appends: &[&Append],
    owner: &str,
) -> Result<Vec<Option<AppendRefusal>>, LogError> {
    let mut refused: Vec<Option<AppendRefusal>> = appends.iter().map(|_| None).collect();
    let all: Vec<&Batch> = appends.iter().map(|append| &append.batch).collect();
    let opening: Vec<&Batch> =
        appends.iter().filter(|append| append.opens()).map(|append| &append.batch).collect();
    let locked = admission::sessions_to_lock(connection, &opening, &all).await?;
    sessions::lock(connection, locked.iter()).await?;
    lock_trees(connection, appends).await?;
    for (append, refused) in appends.iter().zip(&mut refused) {
        *refused = open(connection, append, owner).await?;
    }
    let (ready, places): (Vec<&Append>, Vec<usize>) = (appends.iter().zip(&refused).enumerate())
        .filter(|(_, (_, refused))| refused.is_none())
        .map(|(place, (append, _))| (*append, place))
        .unzip();
    let moved = write_rows(connection, &ready).await?;
    for ((append, place), moved) in ready.into_iter().zip(places).zip(moved) {
        match moved {
            true => {
                if let Some(slot) = refused.get_mut(place) {
                    *slot = write_rest(connection, append).await?;
                }
            }
            false => {
                if append.begins() {
                    take_back(connection, append, owner).await?;
                }
                if let Some(slot) = refused.get_mut(place) {
                    *slot = Some(AppendRefusal::NotAtItsEnd);
                }
            }
        }
    }
    let written = appends.iter().zip(&refused).filter(|(_, refused)| refused.is_none());
    let sealed = written.filter_map(|(append, _)| Some((append.run(), append.key.as_ref()?)));
    seals::seal_rows(connection, &sealed.collect::<Vec<_>>()).await?;
    Ok(refused)
}

/// Locks the rows of the runs to write, together with the root rows of new child runs: all at once and in the order of
/// their numbers, as [`write_rows`] does. Without new child runs, nothing is locked here.
async fn lock_trees(connection: &mut PgConnection, appends: &[&Append]) -> Result<(), LogError> {
    let name = |run: &RunId| encode_text(run.as_str()).into_owned();
    let beginning = appends.iter().filter(|append| append.begins());
    let mut runs: Vec<String> =
        beginning.filter_map(|append| append.notes.root.as_ref().map(name)).collect();
    if runs.is_empty() {
        return Ok(());
    }
    runs.extend(appends.iter().map(|append| name(append.run())));
    sqlx::query("SELECT 1 FROM backstop.runs WHERE run = ANY($1) ORDER BY id FOR NO KEY UPDATE")
        .bind(runs)
        .execute(connection)
        .await
        .map_err(Fault::from)?;
    Ok(())
}

/// Inserts the row of a new run, or checks that a run may be reopened.
async fn open(
    connection: &mut PgConnection,
    append: &Append,
    owner: &str,
) -> Result<Option<AppendRefusal>, LogError> {
    let summary = &append.batch.summary;
    let in_the_way = match (append.begins(), append.batch.reopens()) {
        (true, _) if append.is_root() => sessions::begin(connection, summary).await?,
        (_, true) => sessions::reopen(connection, summary).await?,
        _ => None,
    };
    let refused = match in_the_way {
        None if append.opens() => admission::admit(connection, &append.batch).await?,
        in_the_way => in_the_way,
    };
    match refused {
        Some(error) => Ok(Some(AppendRefusal::By(error))),
        None if append.begins() => begin(connection, append, owner).await,
        None => Ok(None),
    }
}

/// Inserts the row of a run before its first event. The row of a child run is inserted only while this process owns the
/// tree, whose row is locked, so that a writer whose claim is outdated starts nothing.
async fn begin(
    connection: &mut PgConnection,
    append: &Append,
    owner: &str,
) -> Result<Option<AppendRefusal>, LogError> {
    let Batch { run, summary, epoch, .. } = &append.batch;
    let name = |run: &Option<RunId>| run.as_ref().map(|run| encode_text(run.as_str()).into_owned());
    let labels = (!summary.labels.is_empty()).then(|| JsonText::from_value(&*summary.labels));
    let labels = labels.transpose().map_err(|error| LogError::Failed(error.into()))?;
    let root = name(&append.notes.root);
    if let Some(root) = &root {
        let owned: Option<bool> = sqlx::query_scalar(
            "SELECT owner IS NOT DISTINCT FROM $2 FROM backstop.runs WHERE run = $1",
        )
        .bind(root)
        .bind(owner)
        .fetch_optional(&mut *connection)
        .await
        .map_err(Fault::from)?;
        if owned == Some(false) {
            return Ok(Some(AppendRefusal::By(append.conflict())));
        }
    }
    let (keys, values): (Vec<_>, Vec<_>) =
        summary.labels.iter().map(|(key, value)| (encode_text(key), encode_text(value))).unzip();
    let made = sqlx::query(
        "WITH made AS (INSERT INTO backstop.runs (run, session, started_at, last_seq, head, summary, \
         state, parent, terms, owner, epoch, labels, agent, reason, branch_of, follows, root, earlier, digest, \
         incarnation) \
         VALUES ($1, $2, $3, 0, '', '', $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $18, $19) \
         ON CONFLICT (run) DO NOTHING RETURNING id), \
         filed AS (INSERT INTO backstop.labels SELECT label.key, label.value, $3, made.id \
         FROM made, unnest($16::text[], $17::text[]) AS label (key, value)) \
         SELECT id FROM made",
    )
    .bind(&*encode_text(run.as_str()))
    .bind(&*encode_text(summary.session.as_str()))
    .bind(summary.started_at.as_millis())
    .bind(summary.state.as_str())
    .bind(name(&summary.parent))
    .bind(summary.terms.alone().get())
    .bind(owner)
    .bind(to_i64(*epoch))
    .bind(labels.as_ref().map(JsonText::get))
    .bind(&*encode_text(&summary.agent))
    .bind(summary.reason.as_ref().map(|reason| reason.as_str().to_owned()))
    .bind(name(&summary.branch_of))
    .bind(name(&summary.follows))
    .bind(root)
    .bind(name(&append.notes.earlier))
    .bind(keys)
    .bind(values)
    .bind(append.notes.digest.as_deref())
    .bind(append.incarnation.map(|incarnation| incarnation.0.to_vec()))
    .fetch_optional(connection)
    .await
    .map_err(Fault::from)?;
    Ok(made.is_none().then_some(AppendRefusal::NotAtItsEnd))
}

/// Removes the row of a run whose first events were refused.
async fn take_back(
    connection: &mut PgConnection,
    append: &Append,
    owner: &str,
) -> Result<(), LogError> {
    sqlx::query("DELETE FROM backstop.runs WHERE run = $1 AND owner = $2 AND last_seq = 0")
        .bind(&*encode_text(append.run().as_str()))
        .bind(owner)
        .execute(connection)
        .await
        .map_err(Fault::from)?;
    Ok(())
}

/// Begins a transaction that appends. The lock must come before the transaction has an id: see `feed.rs`. A single
/// statement takes the lock by itself.
pub(crate) const BEGIN: &str = "BEGIN; LOCK TABLE backstop.events IN ROW EXCLUSIVE MODE";

/// Updates the heads of runs that end where their appends begin, under their epochs, and inserts the events of these
/// appends. The rows are locked in the order of their numbers, so that two processes never deadlock.
const APPEND: &str = "WITH heads AS MATERIALIZED (\
    SELECT runs.id, new.* FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], \
    $6::text[], $7::text[], $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::boolean[], $13::text[]) \
    AS new (run, before, epoch, last_seq, head, summary, session, state, reason, started_at, ended_at, frees, \
    follows) \
    JOIN backstop.runs AS runs ON runs.run = new.run AND runs.last_seq = new.before \
    AND runs.epoch = new.epoch ORDER BY runs.id FOR NO KEY UPDATE OF runs), \
    moved AS (UPDATE backstop.runs AS runs SET last_seq = heads.last_seq, head = heads.head, \
    summary = heads.summary, session = heads.session, state = heads.state, reason = heads.reason, \
    started_at = heads.started_at, ended_at = heads.ended_at, follows = heads.follows, \
    owner = CASE WHEN heads.frees THEN NULL ELSE runs.owner END \
    FROM heads WHERE runs.id = heads.id RETURNING runs.id, runs.run), \
    written AS (INSERT INTO backstop.events (run_id, seq, place, at, type, actor, caused_by, schema, hash, \
    data, salt, erased) \
    SELECT moved.id, new.seq, ((pg_current_xact_id()::text::bigint + meta.tx_offset) << 20) + new.ordinal, \
    new.at, new.type, new.actor, new.caused_by, new.schema, new.hash, new.data, new.salt, new.erased \
    FROM backstop.meta, unnest($14::text[], $15::bigint[], $16::bigint[], $17::bigint[], $18::text[], \
    $19::text[], $20::bigint[], $21::bigint[], $22::bytea[], $23::text[], $24::bytea[], $25::bytea[]) \
    AS new (run, seq, ordinal, at, type, actor, caused_by, schema, hash, data, salt, erased) \
    JOIN moved ON moved.run = new.run) \
    SELECT run FROM moved";

/// Writes the events of appends to different runs, in one statement, and returns which runs accepted them.
pub(crate) async fn write_rows(
    connection: &mut PgConnection,
    appends: &[&Append],
) -> Result<Vec<bool>, LogError> {
    if appends.is_empty() {
        return Ok(Vec::new());
    }
    let arguments = bound(appends).map_err(|error| Fault::from(sqlx::Error::Encode(error)))?;
    let rows = sqlx::query_with(APPEND, arguments).fetch_all(connection).await;
    let rows = rows.map_err(Fault::from)?;
    let moved: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    Ok(appends.iter().map(|append| moved.contains(&&*encode_text(append.run().as_str()))).collect())
}

fn bound(appends: &[&Append]) -> Result<PgArguments, sqlx::error::BoxDynError> {
    let mut arguments = PgArguments::default();
    let batches = || appends.iter().map(|append| &append.batch);
    let summaries = || batches().map(|batch| &batch.summary);
    let millis = |time: layer0::Timestamp| time.as_millis();
    let runs: Vec<_> = batches().map(|batch| encode_text(batch.run.as_str())).collect();
    arguments.add(&runs)?;
    arguments.add(appends.iter().map(|append| to_i64(append.before())).collect::<Vec<_>>())?;
    arguments.add(batches().map(|batch| to_i64(batch.epoch)).collect::<Vec<_>>())?;
    arguments.add(summaries().map(|summary| to_i64(summary.last_seq)).collect::<Vec<_>>())?;
    arguments.add(summaries().map(|summary| &summary.head.0[..]).collect::<Vec<_>>())?;
    arguments.add(appends.iter().map(|append| &*append.summary).collect::<Vec<_>>())?;
    arguments.add(summaries().map(|it| encode_text(it.session.as_str())).collect::<Vec<_>>())?;
    arguments.add(summaries().map(|summary| summary.state.as_str()).collect::<Vec<_>>())?;
    let reasons = summaries().map(|summary| summary.reason.as_ref().map(layer0::Code::as_str));
    arguments.add(reasons.collect::<Vec<_>>())?;
    arguments.add(summaries().map(|summary| millis(summary.started_at)).collect::<Vec<_>>())?;
    arguments
        .add(summaries().map(|summary| summary.finished_at.map(millis)).collect::<Vec<_>>())?;
    arguments.add(appends.iter().map(|append| append.frees()).collect::<Vec<_>>())?;
    let follows = summaries().map(|it| it.follows.as_ref().map(|run| encode_text(run.as_str())));
    arguments.add(follows.collect::<Vec<_>>())?;

    let records = || batches().flat_map(|batch| &batch.records);
    let of =
        batches().zip(&runs).flat_map(|(batch, run)| batch.records.iter().map(move |_| &**run));
    arguments.add(of.collect::<Vec<_>>())?;
    arguments.add(records().map(|record| to_i64(record.seq)).collect::<Vec<_>>())?;
    arguments.add((0_i64..).zip(records()).map(|(ordinal, _)| ordinal).collect::<Vec<_>>())?;
    arguments.add(records().map(|record| millis(record.at)).collect::<Vec<_>>())?;
    arguments.add(records().map(|record| &*record.event_type).collect::<Vec<_>>())?;
    arguments.add(records().map(|record| record.actor.as_str()).collect::<Vec<_>>())?;
    arguments.add(records().map(|record| record.caused_by.map(to_i64)).collect::<Vec<_>>())?;
    arguments.add(records().map(|record| i64::from(record.schema)).collect::<Vec<_>>())?;
    arguments.add(records().map(|record| &record.hash.0[..]).collect::<Vec<_>>())?;
    let texts = records().map(|record| record.payload.text().unwrap_or_default());
    arguments.add(texts.collect::<Vec<_>>())?;
    let salts = records().map(|record| record.payload.salt().map(|salt| salt.0.to_vec()));
    arguments.add(salts.collect::<Vec<_>>())?;
    let erased = records().map(|record| match &record.payload {
        Payload::Erased(digest) => Some(digest.0.to_vec()),
        _ => None,
    });
    arguments.add(erased.collect::<Vec<_>>())?;
    Ok(arguments)
}

/// Writes the other parts of an append.
async fn write_rest(
    connection: &mut PgConnection,
    append: &Append,
) -> Result<Option<AppendRefusal>, LogError> {
    let batch = &append.batch;
    inbox::take(connection, &batch.run, &batch.taken).await?;
    approvals::keep(connection, batch).await?;
    append.notes.write(connection, batch).await?;
    seals::keep_erasures(connection, &batch.run, &append.erasures).await?;
    if batch.accepts_loss() {
        lost_tails::unmark(connection, &batch.run).await?;
    }
    if append.is_root() && append.begins() {
        queued::begin(connection, &batch.run).await?;
    }
    if append.frees() {
        queued::end(connection, &batch.run).await?;
        approvals::close(connection, &batch.run).await?;
        inbox::close(connection, &batch.run).await?;
    }
    match &batch.moves {
        Some(moves) => subscriptions::take(connection, moves).await,
        None => Ok(()),
    }
    .map(|()| None)
}

/// The log's head of a run: its last event and the event's hash.
pub(crate) struct RunHead {
    pub(crate) last_seq: u64,
    pub(crate) hash: Vec<u8>,
}

/// Reads the heads of runs, after transactions that write to them have ended.
pub(crate) async fn heads(
    connection: &mut PgConnection,
    runs: impl Iterator<Item = &RunId>,
) -> Result<Vec<(RunId, RunHead)>, LogError> {
    let runs: Vec<String> = runs.map(|run| encode_text(run.as_str()).into_owned()).collect();
    let rows = sqlx::query(
        "SELECT run, last_seq, head FROM backstop.runs WHERE run = ANY($1) \
         ORDER BY id FOR NO KEY UPDATE",
    )
    .bind(runs)
    .fetch_all(connection)
    .await
    .map_err(Fault::from)?;
    let read = |row: &sqlx::postgres::PgRow| -> Result<_, LogError> {
        let head = RunHead {
            last_seq: to_u64(row.try_get("last_seq").map_err(Fault::from)?),
            hash: row.try_get("head").map_err(Fault::from)?,
        };
        Ok((crate::rows::decode_run_id(row)?, head))
    };
    rows.iter().map(read).collect()
}
