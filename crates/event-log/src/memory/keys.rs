use std::collections::{HashMap, VecDeque};

use layer0::Timestamp;
use layer0::id::RunId;

use crate::{KeyBinding, LogError, StartKey};

/// Maximum number of keys; further keys are refused until some have expired.
const MAX_KEYS: usize = 100_000;

/// The keys of starts.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    by_name: HashMap<(String, String), Binding>,
    /// Time at which each key was bound or found to be needed, the latest last.
    by_age: VecDeque<(Timestamp, (String, String))>,
}

#[derive(Debug)]
struct Binding {
    input: String,
    run: RunId,
}

impl KeyTable {
    /// Binds a key, or returns its earlier binding. `has_record` returns whether a run is in this log.
    pub(super) fn bind(
        &mut self,
        key: &StartKey,
        run: &RunId,
        now: Timestamp,
        has_record: impl Fn(&RunId) -> bool,
    ) -> Result<KeyBinding, LogError> {
        self.expire(now, has_record);
        let name = (key.operator.clone(), key.key.clone());
        if let Some(kept) = self.by_name.get(&name) {
            return Ok(match key.difference_from(&kept.input) {
                None => KeyBinding::Earlier(kept.run.clone()),
                Some(differs) => KeyBinding::Reused(differs),
            });
        }
        if self.by_name.len() >= MAX_KEYS {
            let why = format!("there is room for {MAX_KEYS} keys of starts a day");
            return Err(LogError::Full(why.into()));
        }
        let kept = Binding { input: key.input.clone(), run: run.clone() };
        self.by_age.push_back((now, name.clone()));
        self.by_name.insert(name, kept);
        Ok(KeyBinding::New)
    }

    /// Removes expired keys whose run is not in this log. A key whose run is here is checked again a day later, so that
    /// it is not checked in each call.
    fn expire(&mut self, now: Timestamp, has_record: impl Fn(&RunId) -> bool) {
        let until = StartKey::kept_since(now);
        while let Some((_, name)) = self.by_age.pop_front_if(|(at, _)| *at <= until) {
            match self.by_name.get(&name) {
                Some(kept) if has_record(&kept.run) => self.by_age.push_back((now, name)),
                _ => drop(self.by_name.remove(&name)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use layer0::operator::Task;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn bind(keys: &mut KeyTable, name: &str, run: &str, at: Timestamp) -> KeyBinding {
        let key = StartKey::new("a", name, &Task::text("x"), None, &BTreeMap::new());
        let key = key.expect("a key that is good");
        let has_record = |run: &RunId| run.as_str() == "run_here";
        keys.bind(&key, &run.into(), at, has_record).expect("there is room")
    }

    /// Spec: J2w
    #[test]
    fn number_of_keys_is_bounded() {
        let (mut keys, start) = (KeyTable::default(), Timestamp::from_millis(0));
        let mut bind = |number: usize, at: Timestamp| {
            let (operator, input) = ("a".to_owned(), String::new());
            let key = StartKey { operator, key: number.to_string(), input };
            keys.bind(&key, &"run_gone".into(), at, |_| false)
        };
        for number in 0..MAX_KEYS {
            assert!(matches!(bind(number, start), Ok(KeyBinding::New)), "{number}");
        }
        assert!(matches!(bind(MAX_KEYS, start), Err(LogError::Full(_))));
        assert!(matches!(bind(0, start), Ok(KeyBinding::Earlier(_))), "what is bound stays bound");
        assert!(matches!(bind(MAX_KEYS, start.after(DAY)), Ok(KeyBinding::New)));
    }

    /// Spec: J2w
    #[test]
    fn kept_key_holds_up_no_other() {
        let (mut keys, start) = (KeyTable::default(), Timestamp::from_millis(0));
        bind(&mut keys, "old", "run_here", start);
        bind(&mut keys, "young", "run_gone", start.after(Duration::from_secs(1)));
        for days in 2..5 {
            let later = start.after(days * DAY);
            let old = bind(&mut keys, "old", "run_2", later);
            assert_eq!(old, KeyBinding::Earlier("run_here".into()));
            assert_eq!((keys.by_name.len(), keys.by_age.len()), (1, 1), "it is there once");
        }
        assert_eq!(bind(&mut keys, "young", "run_2", start.after(5 * DAY)), KeyBinding::New);
    }
}
