//! Runs that could not be gone on with just now.

use std::collections::HashMap;
use std::time::Duration;

use layer0::id::RunId;

/// How long a run is left alone first; twice as long each time.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Runs that are left alone for a while, because something was in their way.
#[derive(Debug, Default)]
pub(crate) struct Pauses(HashMap<RunId, Pause>);

#[derive(Debug)]
struct Pause {
    /// On the clock that is never set.
    until: Duration,
    lasts: Duration,
}

impl Pauses {
    /// Leaves a run alone, longer each time.
    pub(crate) fn put_off(&mut self, run: &RunId, now: Duration) {
        let before = self.0.get(run).map(|pause| pause.lasts);
        let lasts = before.map_or(FIRST, |lasts| LONGEST.min(lasts * 2));
        self.0.insert(run.clone(), Pause { until: now + lasts, lasts });
    }

    /// Leaves a run alone for a moment: what it waits for comes and goes.
    pub(crate) fn hold(&mut self, run: &RunId, now: Duration) {
        self.0.insert(run.clone(), Pause { until: now + FIRST, lasts: FIRST / 2 });
    }

    /// Returns the runs that are left alone.
    pub(crate) fn held(&self, now: Duration) -> Vec<&str> {
        let held = self.0.iter().filter(|(_, pause)| pause.until > now);
        held.map(|(run, _)| run.as_str()).collect()
    }

    pub(crate) fn forget(&mut self, run: &RunId) {
        self.0.remove(run);
    }

    pub(crate) fn holds(&self, run: &RunId, now: Duration) -> bool {
        self.0.get(run).is_some_and(|pause| pause.until > now)
    }

    /// Forgets runs that were not asked for again long after their pause.
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
