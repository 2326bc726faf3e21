//! What callers hear of a writer that is gone.

use async_trait::async_trait;
use backstop_error_store::{ErrorStore, Origin};
use backstop_event_log::{Inbox, InboxRequest};
use backstop_redact::Redactor;
use layer0::failure::{Failure, chain};
use layer0::{Code, Timestamp, code};

use super::*;
use crate::database::Database;

fn error(call: &str, text: &str) -> NewError {
    let origin = Origin::new(Timestamp::default(), "s-1", "run_1", call, "sql");
    NewError::new(origin, Code::new(code::TOOL_EXECUTION_FAILED), None, text, &Redactor::new())
}

/// Breaks the writer.
struct Panics;

#[async_trait]
impl Chore for Panics {
    async fn perform(&self, _: &mut SqliteConnection) -> Result<u64, JobError> {
        panic!("this chore is wrong");
    }
}

/// Spec: E11, S6. A store that was not closed does not say that it is closed.
#[tokio::test]
async fn a_lost_writer_is_no_closed_store() {
    let database = Database::in_memory().await.unwrap();
    let lost = database.for_writing().unwrap().perform(Panics).await.unwrap_err();
    let store = database.errors().store(error("c1", "x")).await.unwrap_err();
    let input = InboxRequest::Input { run: "run_1".into(), text: "hurry".into() };
    let log = database.log().send(input, "ops", Timestamp::default()).await.unwrap_err();
    for chain in [chain(&lost), chain(&store), chain(&log)] {
        assert!(chain[0].ends_with(" failed") && chain[1].contains("is gone"), "{chain:?}");
    }
    assert_eq!((lost.code(), log.code()), (code::STORE_FAILED, code::STORE_FAILED));
    database.close().await;
    let closed = database.errors().store(error("c1", "x")).await;
    assert!(matches!(closed, Err(StoreError::Closed)), "{closed:?}");
}
