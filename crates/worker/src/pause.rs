//! Runs that could not be resumed for the moment.

use std::collections::HashMap;
use std::time::Duration;

use layer0::id::RunId;

/// First pause of a run; doubled each time.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Runs that pause for a while because they were blocked.
#[derive(Debug, Default)]
pub(crate) struct Pauses(HashMap<RunId, RunPause>);

#[derive(Debug)]
struct RunPause {
    /// End of the pause, on the monotonic clock.
    until: Duration,
    lasts: Duration,
}

impl Pauses {
    /// Pauses a run, longer each time.
    pub(crate) fn put_off(&mut self, run: &RunId, now: Duration) {
        let before = self.0.get(run).map(|pause| pause.lasts);
        let lasts = before.map_or(FIRST, |lasts| LONGEST.min(lasts * 2));
        self.0.insert(run.clone(), RunPause { until: now + lasts, lasts });
    }

    /// Pauses a run for a moment, because it is blocked only briefly.
    pub(crate) fn hold(&mut self, run: &RunId, now: Duration) {
        self.0.insert(run.clone(), RunPause { until: now + FIRST, lasts: FIRST / 2 });
    }

    /// Returns the paused runs.
    pub(crate) fn list_paused(&self, now: Duration) -> Vec<&str> {
        let held = self.0.iter().filter(|(_, pause)| pause.until > now);
        held.map(|(run, _)| run.as_str()).collect()
    }

    pub(crate) fn forget(&mut self, run: &RunId) {
        self.0.remove(run);
    }

    pub(crate) fn holds(&self, run: &RunId, now: Duration) -> bool {
        self.0.get(run).is_some_and(|pause| pause.until > now)
    }

    /// Removes runs that were not requested again long after their pause.
    pub(crate) fn clean(&mut self, now: Duration) {
        self.0.retain(|_, pause| pause.until + LONGEST * 10 > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_get_longer_and_are_forgotten() {
        let (run, start) = (RunId::new("run_1"), Duration::from_secs(1));
        let mut pauses = Pauses::default();
        assert!(!pauses.holds(&run, start));
        pauses.put_off(&run, start);
        assert!(pauses.holds(&run, start) && !pauses.holds(&run, start + FIRST));
        for _ in 0..20 {
            pauses.put_off(&run, start);
        }
        let nearly = start + LONGEST.saturating_sub(Duration::from_millis(1));
        assert!(pauses.holds(&run, nearly) && !pauses.holds(&run, start + LONGEST));
        pauses.clean(start + LONGEST * 12);
        assert!(!pauses.holds(&run, start));
        pauses.put_off(&run, start);
        pauses.forget(&run);
        assert!(!pauses.holds(&run, start));
    }
}
