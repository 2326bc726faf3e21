//! The scenarios of this folder, each run once for all tests.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use backstop_config::Scenario;
use backstop_rehearse::{Rehearsal, rehearse};
use serde_json::Value;

/// A scenario and what came of it.
pub(crate) struct Played {
    /// The file's name without its ending.
    pub(crate) name: String,
    /// The file.
    pub(crate) text: String,
    pub(crate) scenario: Scenario,
    pub(crate) rehearsal: Rehearsal,
    /// The rehearsal as `--json` prints it.
    pub(crate) json: Value,
}

static PASSING: LazyLock<Vec<Played>> = LazyLock::new(|| play_folder("scenarios"));
static FAILING: LazyLock<Vec<Played>> = LazyLock::new(|| play_folder("scenarios/failing"));

/// Returns the scenarios that must pass, by name.
pub(crate) fn passing() -> &'static [Played] {
    &PASSING
}

/// Returns the scenarios that must not pass, by name.
pub(crate) fn failing() -> &'static [Played] {
    &FAILING
}

/// Returns a scenario that must pass.
pub(crate) fn named(name: &str) -> &'static Played {
    passing()
        .iter()
        .find(|played| played.name == name)
        .unwrap_or_else(|| panic!("no scenario `{name}`"))
}

/// Runs one file.
pub(crate) async fn play(path: &Path) -> Result<Played, String> {
    let describe = |error: &(dyn std::error::Error + 'static)| {
        format!("{}: {}", path.display(), layer0::failure::Chain(error))
    };
    let scenario = Scenario::read(path).map_err(|error| describe(&error))?;
    let rehearsal = rehearse(&scenario, path).await.map_err(|error| describe(&error))?;
    Ok(Played {
        name: path.file_stem().unwrap().to_string_lossy().into_owned(),
        text: std::fs::read_to_string(path).unwrap(),
        json: serde_json::to_value(&rehearsal).unwrap(),
        scenario,
        rehearsal,
    })
}

/// Returns the scenario files right in a folder, by name.
pub(crate) fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    files.sort();
    files
}

fn play_folder(folder: &str) -> Vec<Played> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let results: Vec<Result<Played, String>> =
        files(folder).iter().map(|file| runtime.block_on(play(file))).collect();
    let unplayable: Vec<&String> = results.iter().filter_map(|one| one.as_ref().err()).collect();
    assert!(unplayable.is_empty(), "{unplayable:#?}");
    results.into_iter().flatten().collect()
}

impl Played {
    /// Returns the types of the run's events.
    pub(crate) fn event_types(&self) -> Vec<&str> {
        self.events().iter().map(|event| event["type"].as_str().unwrap()).collect()
    }

    pub(crate) fn events(&self) -> &[Value] {
        self.json["events"].as_array().unwrap()
    }

    /// Returns the runs of the tree, the root first; none where the scenario has no operators.
    pub(crate) fn runs(&self) -> &[Value] {
        self.json["runs"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns the events of the runs below the root.
    pub(crate) fn events_below(&self) -> impl Iterator<Item = &Value> {
        self.runs().iter().flat_map(|run| run["events"].as_array().into_iter().flatten())
    }

    /// Returns the data of the events of one type.
    pub(crate) fn data_of(&self, event_type: &str) -> Vec<&Value> {
        let events = self.events().iter().filter(|event| event["type"] == event_type);
        events.map(|event| &event["data"]).collect()
    }

    pub(crate) fn requests(&self) -> &[Value] {
        self.json["requests"].as_array().unwrap()
    }

    /// Returns the tool messages of the last request: id, text, is it an error?
    pub(crate) fn tool_messages(&self) -> Vec<(&str, &str, bool)> {
        let Some(last) = self.requests().last() else { return Vec::new() };
        let messages = last["messages"].as_array().unwrap().iter();
        messages
            .filter(|message| message["role"] == "tool")
            .map(|message| {
                (
                    message["tool_call_id"].as_str().unwrap(),
                    message["content"].as_str().unwrap(),
                    message["is_error"] == true,
                )
            })
            .collect()
    }
}
