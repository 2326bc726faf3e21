//! What is written, and how it is timed.

use std::future::Future;
use std::time::{Duration, Instant};

use backstop::Redactor;
use backstop::error_store::{NewError, Origin};
use backstop::event_log::{Batch, Claim, Payload, Record, RunSummary, Seed};
use backstop::layer0::event::{Actor, EventKind, Warning};
use backstop::layer0::{Code, Timestamp, code};

/// How long a round took, and each write of it.
pub(crate) struct Took {
    pub(crate) all: Duration,
    each: Vec<Duration>,
}

impl Took {
    /// Returns the time that so many of 100 writes took at most.
    pub(crate) fn at(&self, percent: usize) -> Duration {
        let mut each = self.each.clone();
        each.sort();
        each.get(each.len() * percent / 100).copied().unwrap_or_default()
    }
}

/// Hands its things to each caller at the same time; a caller writes one after the other.
pub(crate) async fn at_once<T, F>(
    callers: Vec<Vec<T>>,
    write: impl Fn(T) -> F + Clone + Send,
) -> Took
where
    T: Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let began = Instant::now();
    let callers: Vec<_> = callers
        .into_iter()
        .map(|things| {
            let writes: Vec<F> = things.into_iter().map(&write).collect();
            tokio::spawn(async move {
                let mut each = Vec::with_capacity(writes.len());
                for write in writes {
                    let began = Instant::now();
                    write.await;
                    each.push(began.elapsed());
                }
                each
            })
        })
        .collect();
    let mut each = Vec::new();
    for caller in callers {
        each.extend(caller.await.expect("nothing panics"));
    }
    Took { all: began.elapsed(), each }
}

/// Puts the writes of all callers into one row, each caller's in its order, as they would come.
pub(crate) fn in_turns<T>(callers: Vec<Vec<T>>) -> Vec<T> {
    let mut callers: Vec<_> = callers.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let round: Vec<T> = callers.iter_mut().filter_map(Iterator::next).collect();
        if round.is_empty() {
            return all;
        }
        all.extend(round);
    }
}

/// Runs that go on event by event.
pub(crate) struct Runs(Vec<RunSummary>);

impl Runs {
    pub(crate) fn new(count: usize) -> Self {
        let name = |number: usize| format!("run_{count}_{number}");
        Self((0..count).map(|number| summary(&name(number))).collect())
    }

    /// Makes the next `each` appends of every run.
    pub(crate) fn next(&mut self, each: usize) -> Vec<Vec<Batch>> {
        let next = |run: &mut RunSummary| (0..each).map(|_| batch(run)).collect();
        self.0.iter_mut().map(next).collect()
    }
}

/// Makes the summary of a run before its first event.
fn summary(run: &str) -> RunSummary {
    let mut summary = RunSummary::new(run.into());
    summary.session = format!("ses_{run}").into();
    summary.agent = "bench".into();
    summary
}

/// Makes the next append of a run, of one event.
fn batch(run: &mut RunSummary) -> Batch {
    let records = vec![record(run)];
    Batch::new(run.run.clone(), Claim::FIRST, records, run.clone())
}

/// Makes the next record of a run, with 200 characters of payload.
fn record(run: &mut RunSummary) -> Record {
    run.last_seq += 1;
    run.usage.wall_ms += 3;
    let kind: EventKind = Warning::new("so it goes ".repeat(18)).into();
    let at = Timestamp::from_millis(1_767_225_600_000);
    let payload = Payload::Salted(
        Seed::new("bench").salt(run.last_seq),
        serde_json::to_string(&kind).expect("an event serialises"),
    );
    let mut record = Record::new(run.last_seq, at, kind.event_type(), Actor::Machine, payload);
    record.caused_by = Some(1);
    record.hash = record.seal(&run.head, None);
    run.head = record.hash;
    record
}

/// Errors that are all different, each caller's in a session of its own.
pub(crate) struct Errors {
    callers: usize,
    stored: usize,
}

impl Errors {
    pub(crate) const fn new(callers: usize) -> Self {
        Self { callers, stored: 0 }
    }

    /// Makes the next `each` errors of every caller.
    pub(crate) fn next(&mut self, each: usize) -> Vec<Vec<NewError>> {
        let first = self.stored;
        self.stored += each;
        let redactor = Redactor::new();
        let error = |caller: usize, number: usize| {
            // An id holds the second; seconds apart, few are drawn twice.
            let at = 1_767_225_600_000 + i64::try_from(number).unwrap_or(0) * 10;
            let origin = Origin::new(
                Timestamp::from_millis(at),
                format!("ses_{}_{caller}", self.callers),
                format!("run_{}_{caller}", self.callers),
                format!("call_{number}"),
                "sql",
            );
            let reason = Code::new(code::TOOL_EXECUTION_FAILED);
            let text = format!("statement {number} failed\n{}", "at line 12\n".repeat(40));
            NewError::new(origin, reason, Some("SQL_ERROR"), &text, &redactor)
        };
        (0..self.callers)
            .map(|caller| (first..first + each).map(|number| error(caller, number)).collect())
            .collect()
    }
}
