//! Records have the same events as those that earlier versions wrote, but for ids, salts and hashes.
//!
//! The snapshot has a digest for each record. After a change that is meant, run the test with `BACKSTOP_ACCEPT=1`. To see
//! what changed, run it with `BACKSTOP_RECORDS=DIR` here and at the commit before, and compare the two folders.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::failure::resumed::generated_records;
use crate::support::played::{Played, failing, passing};
use crate::support::story::same_ids;

/// The number of generated workflows.
const WORKFLOWS: usize = 60;

/// Spec: D11
#[test]
fn scenarios_write_the_same_records() {
    let all = passing().iter().chain(failing());
    let records = all.map(|played| (played.name.clone(), text(played))).collect();
    compare("scenario_records.txt", records);
}

/// Spec: D11, O6
#[test]
fn generated_workflows_write_the_same_records() {
    let records = generated_records(WORKFLOWS);
    let records = records.into_iter().enumerate();
    let named = records.map(|(index, (case, events))| {
        (format!("workflow_{index}"), same_ids(&format!("{case}\n{}", lines(&events))))
    });
    compare("workflow_records.txt", named.collect());
}

/// Returns the events of a scenario's runs, one a line.
fn text(played: &Played) -> String {
    let below = played.events_below().cloned();
    let events: Vec<Value> = played.events().iter().cloned().chain(below).collect();
    same_ids(&lines(&events))
}

fn lines(events: &[Value]) -> String {
    let mut text = String::new();
    for event in events {
        writeln!(text, "{}", layer0::JsonText::from(event)).unwrap();
    }
    text
}

/// Compares the digests of records with those of a snapshot.
fn compare(snapshot: &str, records: Vec<(String, String)>) {
    if let Some(folder) = std::env::var_os("BACKSTOP_RECORDS") {
        let folder = PathBuf::from(folder);
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in &records {
            std::fs::write(folder.join(format!("{name}.jsonl")), text).unwrap();
        }
    }
    let mut found = String::new();
    for (name, text) in &records {
        let digest = Sha256::digest(text);
        let digest = digest.iter().take(8).fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        writeln!(found, "{name} {digest}").unwrap();
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("durability/snapshots");
    let path = folder.join(snapshot);
    if std::env::var_os("BACKSTOP_ACCEPT").is_some() {
        std::fs::write(&path, &found).unwrap();
        return;
    }
    let wanted = std::fs::read_to_string(&path).unwrap();
    let changed: Vec<&str> =
        found.lines().filter(|line| !wanted.lines().any(|wanted| wanted == *line)).collect();
    let is_gone = |line: &&str| !found.lines().any(|found| found == *line);
    let gone: Vec<&str> = wanted.lines().filter(is_gone).collect();
    assert!(changed.is_empty() && gone.is_empty(), "changed: {changed:?}, before: {gone:?}");
}
