//! The sums over all model attempts of a store.

use std::collections::{BTreeMap, BTreeSet};

use backstop_event_log::{Cursor, EventFilter, EventLog, FeedRecord, LogError};
use layer0::Timestamp;
use layer0::event::{EventKind, ModelAttempted};
use layer0::id::RunId;

use super::runs::KnownRuns;
use crate::args::CostGrouping;

const NANOUSD: f64 = 1e9;

/// The costs of a store, by group.
#[derive(Debug, Default)]
pub(super) struct CostReport {
    groups: BTreeMap<String, CostSum>,
    /// The sum over all groups.
    pub(super) total: CostSum,
}

/// A sum over attempts.
#[derive(Debug, Default, Clone)]
pub(super) struct CostSum {
    runs: BTreeSet<RunId>,
    pub(super) model_attempts: u64,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    cost_nanousd: u64,
    /// Attempts that used tokens without a known price, or that were erased.
    pub(super) unpriced: u64,
    /// Whether a token count in it was estimated.
    pub(super) is_estimated: bool,
}

impl CostReport {
    /// Reads all model attempts that were recorded between two moments. Attempts that a fork copied count for their
    /// original run.
    pub(super) async fn read(
        log: &dyn EventLog,
        by: &CostGrouping,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> Result<Self, LogError> {
        let mut forks = Forks::default();
        forks.read_on(log).await?;
        loop {
            let report = Self::read_attempts(log, by, (since, until), &forks).await?;
            // A fork that was created during the read may have been counted.
            if !forks.read_on(log).await? {
                return Ok(report);
            }
        }
    }

    async fn read_attempts(
        log: &dyn EventLog,
        by: &CostGrouping,
        (since, until): (Option<Timestamp>, Option<Timestamp>),
        forks: &Forks,
    ) -> Result<Self, LogError> {
        let mut report = Self::default();
        let mut runs = KnownRuns::new(log);
        let attempts = EventFilter::new().event_type("model.attempted");
        let mut cursor = Cursor::start();
        loop {
            let page = log.read_feed(&attempts, &cursor).await?;
            for read in page.records {
                let at = read.record.at;
                let is_wanted =
                    since.is_none_or(|since| at >= since) && until.is_none_or(|until| at < until);
                if is_wanted && !forks.copied(&read) {
                    report.add(&mut runs, by, &read).await?;
                }
            }
            if page.is_end {
                return Ok(report);
            }
            cursor = page.cursor;
        }
    }

    async fn add(
        &mut self,
        runs: &mut KnownRuns<'_>,
        by: &CostGrouping,
        read: &FeedRecord,
    ) -> Result<(), LogError> {
        let attempted = decode(read);
        let group = match by {
            CostGrouping::Day => read.record.at.date(),
            CostGrouping::Agent => runs.get(&read.run).await?.agent.clone(),
            CostGrouping::Model => attempted.as_ref().map_or_else(String::new, model_name),
            CostGrouping::Label(key) => {
                runs.get(&read.run).await?.labels.get(key).cloned().unwrap_or_default()
            }
        };
        let cost = match &attempted {
            Some(ModelAttempted { cost_nanousd: None, usage: Some(usage), .. }) => {
                runs.get(&read.run).await?.price.map(|price| price.of_attempt(usage))
            }
            Some(attempted) => attempted.cost_nanousd,
            None => None,
        };
        for sum in [self.groups.entry(group).or_default(), &mut self.total] {
            sum.add(&read.run, attempted.as_ref(), cost);
        }
        Ok(())
    }

    /// Returns the groups: days in order, anything else with the most expensive first.
    pub(super) fn rows(&self, by: &CostGrouping) -> Vec<(&str, &CostSum)> {
        let mut rows: Vec<_> =
            self.groups.iter().map(|(group, sum)| (group.as_str(), sum)).collect();
        if *by != CostGrouping::Day {
            rows.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.cost_nanousd, sum.input_tokens)));
        }
        rows
    }
}

impl CostSum {
    fn add(&mut self, run: &RunId, attempted: Option<&ModelAttempted>, cost: Option<u64>) {
        if !self.runs.contains(run) {
            self.runs.insert(run.clone());
        }
        self.model_attempts += 1;
        let Some(attempted) = attempted else {
            // The event was erased, and its tokens with it.
            self.unpriced += 1;
            return;
        };
        self.is_estimated |= attempted.usage_estimated;
        self.cost_nanousd = self.cost_nanousd.saturating_add(cost.unwrap_or(0));
        if let Some(usage) = attempted.usage {
            self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
            self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
            self.unpriced += u64::from(cost.is_none());
        }
    }

    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the sum of the known costs, in US dollars; `None` if no attempt has a price.
    #[expect(clippy::cast_precision_loss, reason = "a sum of money is shown to four digits")]
    pub(super) fn cost_usd(&self) -> Option<f64> {
        (self.cost_nanousd > 0 || self.unpriced == 0).then_some(self.cost_nanousd as f64 / NANOUSD)
    }
}

/// The forks of a log, as far as read.
struct Forks {
    cursor: Cursor,
    /// Sequence number up to which the record of a fork is a copy.
    copied_until: BTreeMap<RunId, u64>,
}

impl Default for Forks {
    fn default() -> Self {
        Self { cursor: Cursor::start(), copied_until: BTreeMap::new() }
    }
}

impl Forks {
    /// Reads the forks since the last call; returns whether there are any.
    async fn read_on(&mut self, log: &dyn EventLog) -> Result<bool, LogError> {
        let forks = EventFilter::new().event_type("run.forked");
        let mut is_any = false;
        loop {
            let page = log.read_feed(&forks, &self.cursor).await?;
            for read in page.records {
                let until: &mut u64 = self.copied_until.entry(read.run).or_default();
                *until = read.record.seq.max(*until);
                is_any = true;
            }
            self.cursor = page.cursor;
            if page.is_end {
                return Ok(is_any);
            }
        }
    }

    /// Returns whether an event of a fork is a copy.
    fn copied(&self, read: &FeedRecord) -> bool {
        self.copied_until.get(&read.run).is_some_and(|until| read.record.seq < *until)
    }
}

/// Returns the attempt of an event; `None` if the event was erased.
fn decode(read: &FeedRecord) -> Option<ModelAttempted> {
    let text = read.record.payload.text()?;
    match EventKind::decode(&read.record.event_type, text).ok()? {
        EventKind::ModelAttempted(attempted) => Some(attempted),
        _ => None,
    }
}

/// Returns the model of an attempt, or its provider if the record has no model.
fn model_name(attempted: &ModelAttempted) -> String {
    attempted.model.as_ref().unwrap_or(&attempted.provider).to_string()
}
