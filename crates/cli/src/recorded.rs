//! Reconstruction of a run's agent from its record.

use std::path::{Path, PathBuf};

use crate::store::AnyDatabase;
use backstop_config::AgentFile;
use backstop_event_log::{EventLog, LogError, current_agent, read_events};
use backstop_react::AgentBuilder;
use backstop_redact::Redactor;
use layer0::event::Event;
use layer0::id::RunId;

use crate::agent_file;
use crate::assemble::{self, Servers};
use crate::exit::CliError;
use crate::folder;
use crate::secrets::build_process_redactor;
use crate::store::{self, Chosen};

/// The record of a run, with its agent file.
pub(crate) struct RecordedAgentFile {
    pub(crate) events: Vec<Event>,
    pub(crate) file: AgentFile,
    /// Path in place of the agent file's own.
    pub(crate) path: PathBuf,
}

impl RecordedAgentFile {
    /// Reads a run as [`RecordedAgentFile::read`] does, then opens its store for writes with the settings of the agent file.
    pub(crate) async fn open(
        chosen: &Chosen,
        run: &RunId,
        instead: Option<&Path>,
        until: Option<u64>,
    ) -> Result<(Self, AnyDatabase), CliError> {
        let missing = || LogError::NotFound(run.clone());
        let readable = store::open_read_only(chosen).await?.ok_or_else(missing)?;
        let recorded = Self::read(&*readable.log(), run, instead, until).await;
        readable.close().await;
        let mut recorded = recorded?;
        recorded.fetch_credentials().await?;
        let database = store::open(chosen, &recorded.file.store).await?;
        Ok((recorded, database))
    }

    /// Reads a run and its agent file: the one that its record holds after the first `until` events, or at its end
    /// without `until`; or the file `instead`.
    pub(crate) async fn read(
        log: &dyn EventLog,
        run: &RunId,
        instead: Option<&Path>,
        until: Option<u64>,
    ) -> Result<Self, CliError> {
        let (_, events) = read_events(log, run).await?;
        let until = until.and_then(|until| usize::try_from(until).ok()).unwrap_or(usize::MAX);
        let Some(agent) = current_agent(&events[..events.len().min(until.max(1))]) else {
            return Err(LogError::tampered_event(1, "it does not begin with `run.started`").into());
        };
        if let Some(path) = instead {
            let mut file = agent_file::read(path)?;
            file.agent.name.get_or_insert_with(|| agent.name.to_string());
            return Ok(Self { events, file, path: path.to_owned() });
        }
        let definition: serde_json::Value = agent.definition.read().unwrap_or_default();
        let source = &definition["runtime"]["source"];
        let Some(folder) = folder::read_recorded(&source["folder"]) else {
            if agent.is_workflow() {
                let what = format!("run `{run}` is of the workflow `{}`", agent.name);
                let hint = "resume it in the program that has its code: `LocalOrchestrator::resume`, or \
                            `resume_accepting_lost_tail` if its record has lost events";
                return Err(CliError::usage(what).with_hint(hint));
            }
            return Err(CliError::usage(format!("run `{run}` was not started from an agent file"))
                .with_hint("name one with --agent FILE"));
        };
        if source["redacted"].as_bool() == Some(true) {
            let what =
                format!("the agent file of run `{run}` held a secret, which is not recorded");
            return Err(CliError::usage(what).with_hint("name the file with --agent FILE"));
        }
        let path = folder.join("agent.toml");
        let mut file = AgentFile::from_record(&path, source["agent_file"].clone())?;
        if file.agent.name.is_none() {
            file.agent.name = Some(agent.name.to_string());
        }
        Ok(Self { events, file, path })
    }

    /// Returns a redactor for text of people about a run. It knows all secrets of this process, with those of the
    /// recorded agent file if there is one.
    pub(crate) async fn redactor(log: &dyn EventLog, run: &RunId) -> Redactor {
        let Ok((_, events)) = read_events(log, run).await else { return build_process_redactor() };
        let Some(agent) = current_agent(&events) else { return build_process_redactor() };
        let definition: serde_json::Value = agent.definition.read().unwrap_or_default();
        let source = &definition["runtime"]["source"];
        let path = folder::read_recorded(&source["folder"]).unwrap_or_default().join("agent.toml");
        match AgentFile::from_record(&path, source["agent_file"].clone()) {
            Ok(file) => assemble::redactor(&file, &path),
            Err(_) => build_process_redactor(),
        }
    }

    /// Runs the commands that print credentials of the agent file, before the agent is built.
    pub(crate) async fn fetch_credentials(&mut self) -> Result<(), CliError> {
        assemble::fetch_credentials(&mut self.file, &self.path).await
    }

    /// Returns the builder of the agent, with the tools of its servers.
    pub(crate) async fn served_agent(
        &self,
        database: &AnyDatabase,
    ) -> Result<AgentBuilder, CliError> {
        let agent = self.agent(database)?;
        Ok(Servers::connect(&self.file, &self.path).await?.give(agent))
    }

    /// Returns the builder of the agent without its servers.
    pub(crate) fn agent(&self, database: &AnyDatabase) -> Result<AgentBuilder, CliError> {
        let agent = assemble::agent(&self.file, &self.path, Some(database));
        let folder = assemble::parent_folder(&self.path);
        agent.map_err(|error| match folder.is_dir() {
            true => error,
            false => error.with_hint("the record names what is no longer there; use --agent FILE"),
        })
    }

    /// Builds the agent; an error names the agent file.
    pub(crate) fn build(&self, agent: AgentBuilder) -> Result<backstop_react::Agent, CliError> {
        assemble::build(agent, &self.path)
    }
}
