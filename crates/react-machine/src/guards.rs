//! Guards that detect a stuck model, by counts that are kept for the whole run.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::sync::Arc;

use layer0::JsonText;
use layer0::event::ToolResponded;
use layer0::message::ToolCall;

use crate::definition::AgentDefinition;
use crate::failure::FailureCause;
use crate::fnv::{Fnv1a, to_hex};
use crate::limits::Limits;
use crate::phase::batch::{CallBatch, Closed};
use crate::signature::call_signature;
use crate::text;

/// Number of identical batches from which the model is warned.
const WARNED_FROM: u32 = 3;

/// State of the guards of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Guards {
    batches: BTreeMap<Arc<str>, Repeats>,
    texts: BTreeMap<u64, u32>,
    /// Signatures of all calls of the run.
    calls: BTreeSet<Arc<str>>,
    failures: BTreeMap<String, Failures>,
}

/// Counts and last results of a batch.
#[derive(Debug, Clone, Default, PartialEq)]
struct Repeats {
    count: u32,
    last_results: Option<u64>,
    /// Number of consecutive equal results.
    unchanged: u32,
    /// Whether the last results differ from those before.
    progressing: bool,
    /// Whether all its tools are exploratory.
    exploratory: bool,
}

/// Consecutive failures of one call.
#[derive(Debug, Clone, PartialEq)]
struct Failures {
    code: Arc<str>,
    count: u32,
}

/// A guard tripped by a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tripped {
    Loop { signature: Arc<str>, count: u32, limit: u32 },
    Stagnation { text_hash: Arc<str>, count: u32, limit: u32 },
}

impl From<Tripped> for FailureCause {
    fn from(tripped: Tripped) -> Self {
        match tripped {
            Tripped::Loop { signature, count, limit } => Self::Loop { signature, count, limit },
            Tripped::Stagnation { text_hash, count, limit } => {
                Self::Stagnation { text_hash, count, limit }
            }
        }
    }
}

impl Guards {
    /// Counts the text of a turn, unless it is empty. Returns its hash and count.
    pub(crate) fn count_text(&mut self, text: &str) -> Option<(u64, u32)> {
        if text.is_empty() {
            return None;
        }
        let mut digest = Fnv1a::default();
        Hasher::write(&mut digest, text.as_bytes());
        let hash = digest.finish();
        let count = self.texts.entry(hash).or_default();
        *count = count.saturating_add(1);
        Some((hash, *count))
    }

    /// Counts a batch, and checks it first for stagnation, then for a loop.
    pub(crate) fn count_batch(
        &mut self,
        definition: &AgentDefinition,
        calls: &[ToolCall],
        batch: &CallBatch,
        text: Option<(u64, u32)>,
    ) -> Option<Tripped> {
        let limits = &definition.limits;
        let signature = batch.signature();
        let mut brings_new_call = false;
        for call in batch.signatures() {
            brings_new_call |= self.calls.insert(Arc::clone(call));
        }
        let repeats = self.batches.entry(Arc::clone(signature)).or_default();
        repeats.count = repeats.count.saturating_add(1);
        repeats.exploratory = all_exploratory(definition, calls);
        let progress = repeats.progressing || repeats.exploratory;
        let limit =
            if progress { limits.max_observation_steps } else { limits.max_repeated_batch_steps };
        let looped = limit.filter(|limit| repeats.count > *limit).map(|limit| Tripped::Loop {
            signature: Arc::clone(signature),
            count: repeats.count,
            limit,
        });
        let stagnated = if brings_new_call { None } else { stagnation(limits, text) };
        stagnated.or(looped)
    }

    /// Records the results of a batch, to distinguish the next identical one from a loop. Returns the warning for the
    /// model when the batch begins to look like a loop.
    pub(crate) fn note_results(&mut self, limits: &Limits, batch: &Closed) -> Option<String> {
        let mut digest = Fnv1a::default();
        // In the order of the calls, which are the same in each batch with this signature.
        let add = |(_, result): (&str, u64)| Hasher::write(&mut digest, &result.to_be_bytes());
        if batch.results().is_sorted() {
            batch.results().for_each(add);
        } else {
            let mut results: Vec<_> = batch.results().collect();
            results.sort_unstable();
            results.into_iter().for_each(add);
        }
        let digest = digest.finish();
        let repeats = self.batches.get_mut(batch.signature())?;
        let changed = repeats.last_results.is_some_and(|last| last != digest);
        repeats.unchanged = if changed { 1 } else { repeats.unchanged.saturating_add(1) };
        repeats.progressing = changed;
        repeats.last_results = Some(digest);
        repeats.warning(limits)
    }

    /// Records the end of an execution of the call with this signature.
    pub(crate) fn note_execution(&mut self, signature: &str, responded: &ToolResponded) {
        match &responded.error {
            None => drop(self.failures.remove(signature)),
            Some(error) => {
                let code = error.code.clone().unwrap_or_else(|| error.reason.as_str().into());
                let failures = self
                    .failures
                    .entry(signature.to_owned())
                    .or_insert_with(|| Failures { code: Arc::clone(&code), count: 0 });
                if failures.code == code {
                    failures.count = failures.count.saturating_add(1);
                } else {
                    *failures = Failures { code, count: 1 };
                }
            }
        }
    }

    /// Resets the count that made a reopened run fail; all other counts stay.
    pub(crate) fn forgive(&mut self, failure: &FailureCause) {
        match failure {
            FailureCause::Loop { signature, .. } => drop(self.batches.remove(signature)),
            FailureCause::Stagnation { text_hash, .. } => {
                self.texts.retain(|hash, _| to_hex(*hash) != *text_hash);
            }
            _ => {}
        }
    }

    /// Returns the code and count of a call that failed too often in a row to run again.
    pub(crate) fn repeated_failure(
        &self,
        limits: &Limits,
        name: &str,
        taken: impl FnOnce() -> JsonText,
    ) -> Option<(Arc<str>, u32)> {
        let limit = limits.max_repeated_failures?;
        if self.failures.is_empty() {
            return None;
        }
        let failures = self.failures.get(&call_signature(name, &taken()))?;
        (failures.count >= limit).then(|| (Arc::clone(&failures.code), failures.count))
    }
}

impl Repeats {
    /// Returns the warning for the model, from the third time on, if the results do not change and the run is going to
    /// end for that reason.
    fn warning(&self, limits: &Limits) -> Option<String> {
        let limit = limits.max_repeated_batch_steps?;
        if self.exploratory || self.count < WARNED_FROM || self.unchanged < 2 {
            return None;
        }
        let others = self.count - self.unchanged.min(self.count);
        let ends_after = limit.saturating_sub(others).max(self.unchanged);
        Some(text::describe_repetition(self.unchanged, ends_after))
    }
}

/// Checks the text of a turn without a new call that does not end the run.
fn stagnation(limits: &Limits, text: Option<(u64, u32)>) -> Option<Tripped> {
    let (hash, count) = text?;
    let limit = limits.max_stagnation_steps.filter(|limit| count > *limit)?;
    Some(Tripped::Stagnation { text_hash: to_hex(hash), count, limit })
}

/// Returns whether all tools of a batch are exploratory, by their specs or their names.
fn all_exploratory(definition: &AgentDefinition, calls: &[ToolCall]) -> bool {
    let patterns = &definition.exploratory_tools;
    calls.iter().all(|call| {
        let declared =
            definition.tools.iter().any(|tool| tool.name == call.name && tool.exploratory);
        let contains =
            |pattern: &String| call.name.to_lowercase().contains(&pattern.to_lowercase());
        declared || patterns.iter().any(contains)
    })
}
