//! The places that a process leaves behind, and the secrets in them.

use std::collections::BTreeMap;

use super::Outputs;
use super::secrets::Canary;
use super::world::{GIVEN, World};
use crate::tables_of_stores::values;

/// Tables, files and outputs that must hold a text from which a secret was taken.
const TOLD: [&str; 9] = [
    "events",
    "errors",
    "results",
    "state",
    "transcripts",
    "x.db",
    "page-0.html",
    "copied.db",
    "output of",
];

/// All texts, each with its place.
pub(super) struct Places {
    texts: Vec<(String, String)>,
    told: Vec<&'static str>,
}

impl Places {
    pub(super) fn of(world: &World, outputs: Outputs) -> Self {
        let is_file = world.store.starts_with("sqlite");
        let mut texts = outputs;
        texts.extend(values(&world.store, &world.bench));
        texts.extend(values("sqlite:copied.db", &world.bench));
        if is_file {
            texts.extend(values("sqlite:backed-up.db", &world.bench));
        }
        let folder = world.bench.path();
        for file in world.bench.files() {
            let name = file.strip_prefix(folder).unwrap().display().to_string();
            if !name.starts_with(GIVEN) && name != "agent.toml" {
                texts.push((
                    name,
                    String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned(),
                ));
            }
        }
        let told = TOLD.into_iter().filter(|place| is_file || *place != "x.db").collect();
        Self { texts, told }
    }

    /// Returns each secret with each place that holds it, and a part of the text there.
    pub(super) fn holders(&self, canaries: &[Canary]) -> Vec<String> {
        let mut holders = BTreeMap::new();
        for canary in canaries {
            for mark in canary.marks() {
                let held = self
                    .texts
                    .iter()
                    .filter_map(|(place, text)| Some((place, text, text.find(&mark)?)));
                for (place, text, at) in held {
                    let around: String = text[text.floor_char_boundary(at.saturating_sub(60))..]
                        .chars()
                        .take(160)
                        .collect();
                    holders.entry((canary.name, place)).or_insert(around);
                }
            }
        }
        let holders = holders.into_iter();
        holders.map(|((name, place), around)| format!("{name} in {place}: …{around}…")).collect()
    }

    /// Returns the places that hold no text from which a secret was taken.
    pub(super) fn without_traces_of_secrets(&self) -> Vec<&'static str> {
        let is_told = |place: &str| {
            self.texts
                .iter()
                .any(|(name, text)| name.contains(place) && text.contains("[redacted]"))
        };
        self.told.iter().copied().filter(|place| !is_told(place)).collect()
    }
}
