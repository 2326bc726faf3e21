use std::collections::{HashMap, VecDeque};

use layer0::Timestamp;
use layer0::id::RunId;

use crate::{Bound, LogError, StartKey};

/// How many keys are kept at most; further ones are refused until some are old enough.
const MAX_KEYS: usize = 100_000;

/// The keys of starts.
#[derive(Debug, Default)]
pub(super) struct Keys {
    by_name: HashMap<(String, String), Binding>,
    /// Those that have been kept for the shortest time last.
    by_age: VecDeque<(String, String)>,
}

#[derive(Debug)]
struct Binding {
    input: String,
    run: RunId,
    at: Timestamp,
}

impl Keys {
    /// Binds a key, or says what it stands for. `has_record` tells which runs are here.
    pub(super) fn bind(
        &mut self,
        key: &StartKey,
        run: &RunId,
        now: Timestamp,
        has_record: impl Fn(&RunId) -> bool,
    ) -> Result<Bound, LogError> {
        self.expire(now, has_record);
        let name = (key.operator.clone(), key.key.clone());
        if let Some(kept) = self.by_name.get(&name) {
            return Ok(match kept.input == key.input {
                true => Bound::Earlier(kept.run.clone()),
                false => Bound::Reused,
            });
        }
        if self.by_name.len() >= MAX_KEYS {
            let why = format!("there is room for {MAX_KEYS} keys of starts a day");
            return Err(LogError::Full(why.into()));
        }
        let kept = Binding { input: key.input.clone(), run: run.clone(), at: now };
        self.by_age.push_back(name.clone());
        self.by_name.insert(name, kept);
        Ok(Bound::New)
    }

    /// Forgets keys that are old enough and whose run is not here.
    fn expire(&mut self, now: Timestamp, has_record: impl Fn(&RunId) -> bool) {
        while let Some(oldest) = self.by_age.front() {
            let Some(kept) = self.by_name.get(oldest) else { break };
            if kept.at > StartKey::kept_since(now) || has_record(&kept.run) {
                break;
            }
            self.by_name.remove(oldest);
            self.by_age.pop_front();
        }
    }
}
