//! Reports of an unreachable or reachable database, and of a lost lease.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::LogError;
use backstop_store_postgres::{LeaseChange, LeaseWatch};
use layer0::failure::{Chain, Failure};
use tokio::sync::broadcast;

use crate::report::WorkerReport;

/// Health of a worker. Each change is reported once.
#[derive(Debug)]
pub(crate) struct Health<'a> {
    reports: &'a broadcast::Sender<WorkerReport>,
    state: Mutex<HealthState>,
}

#[derive(Debug)]
struct HealthState {
    /// Whether the last round read the database.
    is_read: bool,
    is_lease_held: bool,
    /// Start of the reported outage of the database, on the monotonic clock.
    away_since: Option<Duration>,
}

impl<'a> Health<'a> {
    pub(crate) const fn new(reports: &'a broadcast::Sender<WorkerReport>) -> Self {
        let state = HealthState { is_read: true, is_lease_held: true, away_since: None };
        Self { reports, state: Mutex::new(state) }
    }

    /// Follows the changes of the lease; never returns.
    pub(crate) async fn follow(&self, mut lease: LeaseWatch) {
        loop {
            self.take_in(lease.next_change().await, SystemClock.monotonic());
        }
    }

    /// Records that a round has read the database.
    pub(crate) fn was_read(&self, now: Duration) {
        self.change(|state, reports| {
            state.is_read = true;
            reports.extend(state.back(now));
        });
    }

    /// Records that a round could not read the database.
    pub(crate) fn was_not_read(&self, error: &LogError, now: Duration) {
        self.change(|state, reports| {
            state.is_read = false;
            reports.extend(state.away(error, now));
        });
    }

    fn take_in(&self, change: LeaseChange, now: Duration) {
        self.change(|state, reports| match change {
            LeaseChange::CutOff(error) => {
                state.is_lease_held = false;
                reports.extend(state.away(&error, now));
            }
            LeaseChange::Ended => {
                state.is_lease_held = false;
                reports.push(WorkerReport::LeaseLost);
            }
            LeaseChange::Held => {
                state.is_lease_held = true;
                reports.extend(state.back(now));
            }
            _ => {}
        });
    }

    fn change(&self, change: impl FnOnce(&mut HealthState, &mut Vec<WorkerReport>)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reports = Vec::new();
        change(&mut state, &mut reports);
        for report in reports {
            // There may be no listener.
            let _ = self.reports.send(report);
        }
    }
}

impl HealthState {
    fn away(&mut self, error: &LogError, now: Duration) -> Option<WorkerReport> {
        if self.away_since.is_some() {
            return None;
        }
        self.away_since = Some(now);
        let (code, message) = (error.code().to_owned(), Chain(error).to_string());
        Some(WorkerReport::DatabaseAway { code, message })
    }

    fn back(&mut self, now: Duration) -> Option<WorkerReport> {
        if !self.is_read || !self.is_lease_held {
            return None;
        }
        let since = self.away_since.take()?;
        Some(WorkerReport::DatabaseBack { after: now.saturating_sub(since) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(reports: &mut broadcast::Receiver<WorkerReport>) -> Vec<WorkerReport> {
        std::iter::from_fn(|| reports.try_recv().ok()).collect()
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Spec: J2w
    #[test]
    fn each_change_is_reported_once() {
        let (sender, mut reports) = broadcast::channel(16);
        let health = Health::new(&sender);
        health.was_read(at(0));
        health.take_in(LeaseChange::Held, at(0));
        assert_eq!(reported(&mut reports), []);
        let refused = || LogError::Unreachable("refused".into());
        health.take_in(LeaseChange::CutOff(refused()), at(1_000));
        health.was_not_read(&refused(), at(1_500));
        health.was_not_read(&refused(), at(2_000));
        let away = WorkerReport::DatabaseAway {
            code: "store.failed".to_owned(),
            message: "log cannot be reached: refused".to_owned(),
        };
        assert_eq!(reported(&mut reports), [away]);
        health.take_in(LeaseChange::Ended, at(16_000));
        assert_eq!(reported(&mut reports), [WorkerReport::LeaseLost]);
        health.was_read(at(20_000));
        assert_eq!(reported(&mut reports), [], "nothing can be started yet");
        health.take_in(LeaseChange::Held, at(21_000));
        let back = WorkerReport::DatabaseBack { after: Duration::from_secs(20) };
        assert_eq!(reported(&mut reports), [back]);
        health.was_read(at(22_000));
        assert_eq!(reported(&mut reports), []);
    }

    /// Spec: J2w. A process that was stopped for too long finds the database as it was.
    #[test]
    fn lease_is_lost_while_the_database_answers() {
        let (sender, mut reports) = broadcast::channel(16);
        let health = Health::new(&sender);
        health.take_in(LeaseChange::Ended, at(0));
        health.take_in(LeaseChange::Held, at(1));
        health.was_read(at(2));
        assert_eq!(reported(&mut reports), [WorkerReport::LeaseLost]);
    }
}
