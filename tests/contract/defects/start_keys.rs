//! Keys of starts that break one promise each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_event_log::{KeyBinding, LogError, StartKey, StartKeys};
use backstop_testkit::contract::Suite;
use layer0::Timestamp;
use layer0::id::RunId;

super::defects! {
    BindsInTwoSteps => binds_for_one_of_many,
    CutsTextAtNul => keeps_any_text,
    ForgetsInAnHour => keeps_a_key_for_a_day,
    GivesTheLastRun => gives_the_first_run_again,
    ForgetsNothing => forgets_a_key_without_a_run,
    IgnoresTheInput => refuses_another_input,
    KnowsEveryKey => binds_a_new_key,
    SharesKeysOfOperators => keeps_the_keys_of_operators_apart,
}

use Defect as D;

/// Spec: J2w
#[test]
fn every_defect_of_start_keys_is_noticed() {
    super::check(DEFECTS, suite);
}

fn suite(defect: Defect) -> Suite {
    backstop_testkit::contract::start_keys(async move || {
        Arc::new(Defective { defect, kept: Mutex::default() }) as _
    })
}

/// An operator and a key.
type Name = (String, String);

/// Keys that do one thing wrong.
struct Defective {
    defect: Defect,
    kept: Mutex<HashMap<Name, (String, RunId, Timestamp)>>,
}

#[async_trait]
impl StartKeys for Defective {
    async fn bind(
        &self,
        key: &StartKey,
        run: &RunId,
        now: Timestamp,
    ) -> Result<KeyBinding, LogError> {
        let is = |defect| self.defect == defect;
        let mut name = (key.operator.clone(), key.key.clone());
        if is(D::SharesKeysOfOperators) {
            name.0.clear();
        }
        if is(D::CutsTextAtNul)
            && let Some((before, _)) = key.key.split_once('\0')
        {
            name.1 = format!("{before}{run}");
        }
        let found = self.kept.lock().unwrap().get(&name).cloned();
        if is(D::BindsInTwoSteps) {
            tokio::task::yield_now().await;
        }
        if is(D::KnowsEveryKey) {
            return Ok(KeyBinding::Earlier(run.clone()));
        }
        let kept_hours = match self.defect {
            D::ForgetsInAnHour => 1,
            D::ForgetsNothing => u64::MAX,
            _ => 24,
        };
        if let Some((input, first, at)) = found
            && now.since(at).as_secs() / (60 * 60) < kept_hours
        {
            return Ok(match key.difference_from(&input) {
                Some(differs) if !is(D::IgnoresTheInput) => KeyBinding::Reused(differs),
                _ if is(D::GivesTheLastRun) => KeyBinding::Earlier(run.clone()),
                _ => KeyBinding::Earlier(first),
            });
        }
        self.kept.lock().unwrap().insert(name, (key.input.clone(), run.clone(), now));
        Ok(KeyBinding::New)
    }
}
