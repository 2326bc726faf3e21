//! Paths of steps: the places in a workflow's record that its code requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use layer0::code;
use layer0::error::{OperatorError, OrchError};
use layer0::failure::{Effect, Facts, Failure};
use thiserror::Error;

use crate::workflow::line::StepName;

/// The paths requested in this process.
#[derive(Default)]
pub(super) struct Paths {
    /// The number of requests for each path of a step.
    steps: BTreeMap<Arc<str>, u32>,
    /// The number of requests for each path of a route.
    routes: BTreeMap<Arc<str>, u32>,
    /// The number of steps without a name, by scope.
    unnamed: BTreeMap<Option<Arc<str>>, u32>,
}

/// Error for a step whose name contains `~`, which separates the counter of steps with the same name.
///
/// Retry: never. Effect: none.
#[derive(Debug, Error)]
#[error("the name of a step cannot hold `~`: `{0}`")]
struct InvalidName(String);

impl Failure for InvalidName {
    fn facts(&self) -> Facts {
        Facts::never(code::ORCH_DISPATCH_FAILED, Effect::None)
    }
}

impl Paths {
    /// Returns the path of a dispatch; a repeated path gets a counter.
    ///
    /// # Errors
    ///
    /// A name that could be confused with a counted one.
    pub(super) fn next_step(
        &mut self,
        workflow: &str,
        step: &StepName,
    ) -> Result<Arc<str>, OrchError> {
        let path = self.path(workflow, step)?;
        Ok(count(&mut self.steps, path))
    }

    /// Returns the path of a route; a repeated path gets a counter.
    ///
    /// # Errors
    ///
    /// As [`Paths::next_step`].
    pub(super) fn next_route(
        &mut self,
        workflow: &str,
        step: &StepName,
    ) -> Result<Arc<str>, OrchError> {
        let path = self.path(workflow, step)?;
        Ok(count(&mut self.routes, path))
    }

    /// Returns the path that the next dispatch with this name gets.
    pub(super) fn upcoming_step(&self, workflow: &str, step: &StepName) -> Arc<str> {
        let unnamed = || self.unnamed.get(&step.scope).map_or(1, |count| count + 1);
        let path = join(workflow, step, unnamed);
        let count = self.steps.get(&path).map_or(1, |count| count + 1);
        with_count(path, count)
    }

    /// Returns whether the code requested a recorded step.
    pub(super) fn has_step(&self, path: &str) -> bool {
        let counted = path.rsplit_once('~');
        let counted = counted.and_then(|(name, number)| Some((name, number.parse::<u32>().ok()?)));
        let (name, number) = counted.unwrap_or((path, 1));
        number <= self.steps.get(name).copied().unwrap_or_default()
    }

    fn path(&mut self, workflow: &str, step: &StepName) -> Result<Arc<str>, OrchError> {
        if step.holds_count() {
            let name = step.scope.iter().chain(&step.name).map(|it| &**it).collect::<Vec<_>>();
            return Err(OperatorError::from_failure(InvalidName(name.join("/"))).into());
        }
        Ok(join(workflow, step, || {
            let unnamed = self.unnamed.entry(step.scope.clone()).or_default();
            *unnamed += 1;
            *unnamed
        }))
    }
}

/// Returns the path of a step without its counter; a step without a name has a number.
fn join(workflow: &str, step: &StepName, unnamed: impl FnOnce() -> u32) -> Arc<str> {
    let name = step.name.clone().unwrap_or_else(|| unnamed().to_string().into());
    match &step.scope {
        Some(scope) => format!("{workflow}/{scope}/{name}").into(),
        None => format!("{workflow}/{name}").into(),
    }
}

fn count(paths: &mut BTreeMap<Arc<str>, u32>, path: Arc<str>) -> Arc<str> {
    let count = paths.entry(Arc::clone(&path)).or_default();
    *count += 1;
    with_count(path, *count)
}

fn with_count(path: Arc<str>, count: u32) -> Arc<str> {
    match count {
        1 => path,
        count => format!("{path}~{count}").into(),
    }
}
