//! A scripted model, which takes a run's place in the script from its record.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use backstop_config::{ConfigError, ModelTable, read_script};
use backstop_event_log::{EventLog, LogError, Record};
use backstop_provider::{
    ModelRequest, ModelResponse, ModelSettings, Provider, ProviderError, ScriptedAnswer,
    ScriptedProvider, UnsupportedSetting,
};
use layer0::event::EventKind;
use layer0::id::RunId;

use crate::exit::CliError;

/// Number of runs whose place is cached; the records of others are read again.
const MAX_KEPT: usize = 64;

/// Reads the script of a model.
pub(super) fn read_model_script(
    model: &ModelTable,
    path: &Path,
    folder: &Path,
) -> Result<Vec<ScriptedAnswer>, CliError> {
    let header = model.header();
    let script = model.script.as_ref().ok_or_else(|| {
        let hint = format!("add `script = \"FILE.toml\"` with [[model]] entries to {header}");
        ConfigError::new(path, "`provider = \"script\"` needs a script").with_hint(hint)
    })?;
    let read = read_script(&folder.join(script)).map_err(|error| match error.hint() {
        Some(_) => error,
        None => error.with_hint(format!(
            "`script` in {header} names it; a relative path is below the agent file's folder"
        )),
    });
    Ok(read?)
}

/// A provider that answers each run from its own place in a script: after the outcomes in its record. Each run starts
/// at the beginning of the script, and a resumed run continues from its place in any process.
pub(super) struct RunScript {
    answers: Arc<[ScriptedAnswer]>,
    /// Provider name in records.
    label: Arc<str>,
    log: Arc<dyn EventLog>,
    runs: Mutex<BTreeMap<RunId, Outcomes>>,
}

impl RunScript {
    pub(super) fn new(
        answers: Vec<ScriptedAnswer>,
        label: Arc<str>,
        log: Arc<dyn EventLog>,
    ) -> Self {
        Self { answers: answers.into(), label, log, runs: Mutex::default() }
    }

    /// Returns the number of outcomes in the record of a run.
    async fn count_outcomes(&self, run: &RunId) -> Result<usize, LogError> {
        let mut outcomes = self.runs().get(run).copied().unwrap_or_default();
        for record in self.log.records(run, outcomes.read + 1).await? {
            outcomes.take(&record, run, &self.label)?;
        }
        let mut runs = self.runs();
        if runs.len() >= MAX_KEPT {
            runs.clear();
        }
        runs.insert(run.clone(), outcomes);
        Ok(outcomes.count)
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, Outcomes>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Provider for RunScript {
    fn name(&self) -> &str {
        "script"
    }

    fn model(&self) -> &str {
        "script"
    }

    /// Accepts every setting, because the answers are fixed.
    fn check_settings(&self, _: &ModelSettings) -> Result<(), UnsupportedSetting> {
        Ok(())
    }

    /// Returns `true`, as [`ScriptedProvider`] does.
    fn reports_all_usage(&self) -> bool {
        true
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let place = match &request.run {
            Some(run) => {
                self.count_outcomes(run).await.map_err(|error| ProviderError::Other(error.into()))
            }
            None => Ok(0),
        };
        let script = ScriptedProvider::new(Arc::clone(&self.answers)).starting_at(place?);
        script.complete(request).await
    }
}

/// The number of a script's answers that a record has used: an outcome is an answer, or a failed attempt. A successful
/// attempt whose answer was lost before it was logged is repeated.
#[derive(Debug, Clone, Copy, Default)]
struct Outcomes {
    count: usize,
    /// Whether the last attempt succeeded and its answer is not logged yet.
    answered: bool,
    /// Sequence number of the last read event.
    read: u64,
}

impl Outcomes {
    fn take(&mut self, record: &Record, run: &RunId, label: &str) -> Result<(), LogError> {
        self.read = record.seq;
        if !matches!(&*record.event_type, "model.attempted" | "model.responded") {
            return Ok(());
        }
        match record.decode(run)?.kind {
            EventKind::ModelAttempted(attempted) if *attempted.provider == *label => {
                self.answered = attempted.code.is_none();
                self.count += usize::from(!self.answered);
            }
            // Another provider's attempt.
            EventKind::ModelAttempted(_) => self.answered = false,
            EventKind::ModelResponded(_) if std::mem::take(&mut self.answered) => self.count += 1,
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use backstop_event_log::{MemoryLog, RunWriter, Seed};
    use layer0::JsonText;
    use layer0::Timestamp;
    use layer0::event::{Actor, AgentRecord, ModelAttempted, ModelResponded, RunStarted};
    use layer0::message::Transcript;
    use serde_json::json;

    use super::*;

    fn attempted(provider: &str, code: Option<&str>) -> EventKind {
        let attempted = json!({
            "call": 1, "attempt": 1, "provider": provider, "code": code, "status": null,
            "delay_ms": null, "usage": null,
        });
        serde_json::from_value::<ModelAttempted>(attempted).unwrap().into()
    }

    fn responded() -> EventKind {
        let responded = json!({
            "call": 1, "text": "x", "thinking": null, "tool_calls": [], "stop_reason": "end_turn",
            "usage": { "input_tokens": 1, "output_tokens": 1, "cached_tokens": 0 },
        });
        serde_json::from_value::<ModelResponded>(responded).unwrap().into()
    }

    async fn append(writer: &mut RunWriter, kind: EventKind) {
        writer.stage(&Seed::new("test"), Timestamp::from_millis(1), Actor::Runtime, None, kind);
        drop(writer.commit().await.unwrap());
    }

    /// SCENARIOS.md: the place in a script is the number of outcomes in the record, wherever the record is cut, with or
    /// without a cached place.
    #[tokio::test]
    async fn outcomes_are_answers_and_failed_attempts() {
        let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
        let of = |label: &str| RunScript::new(Vec::new(), label.into(), Arc::clone(&log));
        let (kept, run) = (of("script"), RunId::from("run_1"));
        let mut writer = RunWriter::new(Arc::clone(&log), run.clone());
        let (mut script, mut again, mut other) = (Vec::new(), Vec::new(), Vec::new());
        for kind in [
            attempted("script", Some("provider.transient")),
            attempted("script", None),
            responded(),
            attempted("script", Some("provider.quota_exhausted")),
            attempted("other", None),
            responded(),
            attempted("script", None),
            attempted("script", None),
            responded(),
        ] {
            append(&mut writer, kind).await;
            script.push(kept.count_outcomes(&run).await.unwrap());
            again.push(of("script").count_outcomes(&run).await.unwrap());
            other.push(of("other").count_outcomes(&run).await.unwrap());
        }
        assert_eq!(script, [1, 1, 2, 3, 3, 3, 3, 3, 4]);
        assert_eq!(again, script);
        assert_eq!(other, [0, 0, 0, 0, 0, 1, 1, 1, 1]);
    }

    /// The number of runs and the order of their requests make no difference.
    #[tokio::test]
    async fn each_run_has_its_own_place() {
        let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
        let answers = vec![ScriptedAnswer::saying("one"), ScriptedAnswer::saying("two")];
        let script = RunScript::new(answers, "script".into(), Arc::clone(&log));
        let runs: Vec<RunId> = (0..=MAX_KEPT).map(|run| format!("run_{run}").into()).collect();
        let mut writers = Vec::new();
        for run in &runs {
            let mut writer = RunWriter::new(Arc::clone(&log), run.clone());
            let agent = AgentRecord::new("a", "", JsonText::default());
            // In a session of its own.
            let started = RunStarted::new("go", format!("ses_{run}").into(), agent);
            append(&mut writer, started.into()).await;
            writers.push(writer);
        }
        for expected in ["one", "two"] {
            for (run, writer) in runs.iter().zip(&mut writers) {
                append(writer, attempted("script", None)).await;
                let request = ModelRequest::new(Transcript::default()).run(run.clone());
                assert_eq!(&*script.complete(&request).await.unwrap().text, expected, "{run}");
                append(writer, responded()).await;
            }
        }
        assert!(script.runs().len() <= MAX_KEPT);
    }
}
