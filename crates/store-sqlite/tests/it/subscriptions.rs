//! Moves of subscriptions, and claims after the death of a host.

use std::sync::Arc;

use backstop_event_log::{Cursor, EventLog, Log, LogError, Moves, RunWriter, Seed, segment_id};
use layer0::event::{Actor, SubscriptionOpened};

use crate::{Folder, at, open, tamper};

/// Starts the first segment of a subscription.
async fn begin(log: &Arc<dyn EventLog>) -> RunWriter {
    let mut writer = RunWriter::new(Arc::clone(log), segment_id("tell", 1));
    let opened = SubscriptionOpened::new("tell", "run.failed").into();
    writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, opened);
    writer.move_subscription(Moves::new("tell", "run.failed", 1));
    writer.commit().await.unwrap();
    writer
}

fn moves(place: u64) -> Moves {
    let mut moves = Moves::new("tell", "run.failed", 1);
    moves.cursor = Some(Cursor::behind(place, None));
    moves
}

/// Spec: X2, D8
#[tokio::test]
async fn lost_claim_moves_no_subscription() {
    let folder = Folder::new();
    let (one, other) = (open(&folder.file()).await, open(&folder.file()).await);
    let log: Arc<dyn EventLog> = Arc::new(one.log());
    let mut writer = begin(&log).await;
    writer.move_subscription_alone(moves(7)).await.unwrap();
    let stands = async || log.subscription("tell").await.unwrap().unwrap().cursor;
    assert_eq!(stands().await, Cursor::behind(7, None));
    tamper(&folder.file(), "UPDATE runs SET owner = 'dead'").await;
    let _claim = other.log().claim(&segment_id("tell", 1)).await.unwrap();
    let refused = writer.move_subscription_alone(moves(8)).await;
    assert!(matches!(refused, Err(LogError::Conflict { .. })), "{refused:?}");
    assert_eq!(stands().await, Cursor::behind(7, None));
}

/// Spec: X3, D8
#[tokio::test]
async fn claim_tells_whether_its_holder_died() {
    let folder = Folder::new();
    let (one, other) = (open(&folder.file()).await, open(&folder.file()).await);
    let log: Arc<dyn EventLog> = Arc::new(one.log());
    let segment = segment_id("tell", 1);
    drop(begin(&log).await);
    let released = log.claim(&segment).await.unwrap();
    assert!(!released.is_takeover(), "it was released");
    tamper(&folder.file(), "UPDATE runs SET owner = 'dead'").await;
    assert!(other.log().claim(&segment).await.unwrap().is_takeover());
}
