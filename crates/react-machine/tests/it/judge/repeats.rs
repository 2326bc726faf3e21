//! G2 and G3: what a run repeats.

use std::collections::{BTreeMap, BTreeSet};

use layer0::event::ToolResponded;

use super::rules::{JudgedCall, Rules};

/// Counts of the whole run.
#[derive(Debug, Clone, Default)]
pub(super) struct Repetitions {
    batches: BTreeMap<String, BatchCount>,
    texts: BTreeMap<String, u64>,
    calls: BTreeSet<String>,
    failures: BTreeMap<String, (String, u64)>,
}

/// The number of times that a batch was requested, and the results of the last two.
#[derive(Debug, Clone, Default)]
struct BatchCount {
    count: u64,
    last: Option<Vec<String>>,
    has_changed: bool,
}

/// A guard that a turn trips.
#[derive(Debug, Clone)]
pub(super) struct GuardTrip {
    pub(super) reason: &'static str,
    pub(super) count: u64,
    pub(super) limit: u64,
    pub(super) evidence: Option<String>,
}

/// FNV-1a 64, in hex.
fn fnv(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Returns the signature of a call.
pub(super) fn signature(tool: &str, arguments: &str) -> String {
    format!("{tool}:{}", fnv(arguments))
}

fn batch_signature(calls: &[JudgedCall]) -> String {
    let mut all: Vec<_> = calls.iter().map(|call| signature(&call.tool, &call.arguments)).collect();
    all.sort();
    all.join("|")
}

impl Repetitions {
    /// Counts a text. Returns how often it occurred in the run.
    pub(super) fn count_text(&mut self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        let count = self.texts.entry(fnv(text)).or_default();
        *count += 1;
        *count
    }

    /// Returns whether a text with this count stagnates.
    fn stagnation(rules: &Rules, text: &str, count: u64) -> Option<GuardTrip> {
        let limit = rules.max_stagnation_steps.filter(|limit| count > *limit)?;
        let (reason, evidence) = ("guard.stagnation", Some(fnv(text)));
        Some(GuardTrip { reason, count, limit, evidence })
    }

    /// Counts a batch. Returns the guard that it trips: oversize, stagnation, loop.
    pub(super) fn count_batch(
        &mut self,
        rules: &Rules,
        calls: &[JudgedCall],
        text: (&str, u64),
    ) -> Option<GuardTrip> {
        let signatures = calls.iter().map(|call| signature(&call.tool, &call.arguments));
        let is_new = signatures.fold(false, |new, call| self.calls.insert(call) | new);
        let evidence = batch_signature(calls);
        let batch = self.batches.entry(evidence.clone()).or_default();
        batch.count += 1;
        let explores = calls.iter().all(|call| rules.tool(&call.tool).is_exploratory);
        let limit = match batch.has_changed || explores {
            true => rules.max_observation_steps,
            false => rules.max_repeated_batch_steps,
        };
        if calls.len() > rules.max_parallel_tools {
            let (count, limit) = (calls.len() as u64, rules.max_parallel_tools as u64);
            let reason = "guard.parallel_tool_limit";
            return Some(GuardTrip { reason, count, limit, evidence: None });
        }
        if let Some(tripped) =
            Self::stagnation(rules, text.0, text.1).filter(|_| !is_new && text.1 > 0)
        {
            return Some(tripped);
        }
        let limit = limit.filter(|limit| batch.count > *limit)?;
        let (reason, evidence) = ("guard.loop_detected", Some(evidence));
        Some(GuardTrip { reason, count: batch.count, limit, evidence })
    }

    /// Notes the results of a batch that is answered.
    pub(super) fn note_results(&mut self, calls: &[JudgedCall]) {
        let mut results: Vec<String> = calls
            .iter()
            .map(|call| {
                let super::rules::CallStatus::Answered { result } = &call.status else {
                    return String::new();
                };
                format!("{} {result}", signature(&call.tool, &call.arguments))
            })
            .collect();
        results.sort();
        let batch = self.batches.entry(batch_signature(calls)).or_default();
        batch.has_changed = batch.last.as_ref().is_some_and(|last| *last != results);
        batch.last = Some(results);
    }

    /// Notes how an execution ended: T9 counts failures in a row.
    pub(super) fn note_execution(&mut self, signature: String, answer: &ToolResponded) {
        let Some(error) = &answer.error else {
            self.failures.remove(&signature);
            return;
        };
        let code = error.code.as_deref().unwrap_or(error.reason.as_str()).to_owned();
        let (last, count) = self.failures.entry(signature).or_default();
        *count = if *last == code { *count + 1 } else { 1 };
        *last = code;
    }

    /// Returns how often in a row the call failed with one code.
    pub(super) fn failures(&self, signature: &str) -> u64 {
        self.failures.get(signature).map_or(0, |(_, count)| *count)
    }

    /// Begins the count of a guard anew.
    pub(super) fn forgive(&mut self, evidence: &str) {
        self.batches.remove(evidence);
        self.texts.remove(evidence);
    }
}

/// Returns the result of an answer: ok and output, or the failure.
pub(super) fn result(answer: &ToolResponded) -> String {
    match &answer.error {
        None => answer.output.get().to_owned(),
        Some(error) => format!("{} {:?} {}", error.reason, error.code, error.message),
    }
}
