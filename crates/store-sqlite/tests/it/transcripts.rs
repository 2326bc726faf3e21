//! The kept parts of transcripts, as other programs and versions may leave them.

use backstop_event_log::LogKey;
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, RunRequest};
use backstop_store_sqlite::Database;
use layer0::message::Message;

use crate::{Folder, open, tamper};

/// Runs a turn of the session as a new process does; returns the texts of the transcript.
async fn turn(database: Database, text: &str) -> Vec<String> {
    let model = ScriptedProvider::from_fn(|_| ScriptedAnswer::saying("yes"));
    let agent = Agent::builder(model).log(database.log()).build().unwrap();
    let outcome = agent.run(RunRequest::new(text).session("s")).await.unwrap();
    drop(agent);
    database.close().await;
    let texts = outcome.transcript.messages().iter().filter_map(|message| match &**message {
        Message::User { content, .. } => Some(content.to_string()),
        _ => None,
    });
    texts.collect()
}

/// Spec: D9, M7. A part that another program changed, or that is missing, is read from the record.
#[tokio::test]
async fn changed_part_is_read_from_the_record() {
    let folder = Folder::new();
    for text in ["one", "two", "three"] {
        turn(open(&folder.file()).await, text).await;
    }
    for sql in [
        "UPDATE transcripts SET text = replace(text, 'one', 'other')",
        "UPDATE transcripts SET follows = NULL",
        "UPDATE transcripts SET follows = 'unknown'",
        "UPDATE transcripts SET text = '[]', digest = x'00'",
        "DELETE FROM transcripts",
    ] {
        tamper(&folder.file(), sql).await;
        let texts = turn(open(&folder.file()).await, "four").await;
        assert_eq!(texts[..4], ["one", "two", "three", "four"], "{sql}");
    }
}

/// Spec: D1, M7. In a log with a key, only its owner can write a part.
#[tokio::test]
async fn part_of_another_key_is_not_used() {
    let folder = Folder::new();
    let key = LogKey::new("correct horse battery staple").unwrap();
    for text in ["one", "two"] {
        turn(open(&folder.file()).await.with_log_key(key.clone()), text).await;
    }
    let other = LogKey::new("another key").unwrap();
    // Without the key of its runs their records cannot be read, and what is kept of them does not replace the key.
    let texts = turn(open(&folder.file()).await.with_log_key(other), "three").await;
    assert_eq!(texts, ["three"]);
    let texts = turn(open(&folder.file()).await, "four").await;
    assert_eq!(texts.last().unwrap(), "four");
    assert!(!texts.contains(&"one".to_owned()), "{texts:?}");
}
