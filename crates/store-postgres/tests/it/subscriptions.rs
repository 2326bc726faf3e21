//! Moves of subscriptions, and claims after the death of a host.

use std::sync::Arc;

use backstop_event_log::{Cursor, EventLog, Log, LogError, Moves, RunWriter, segment_id};
use layer0::event::SubscriptionOpened;

use crate::support::{append, connection, open, server};

/// Starts the first segment of a subscription.
async fn begin(log: &Arc<dyn EventLog>) -> RunWriter {
    let mut writer = RunWriter::new(Arc::clone(log), segment_id("tell", 1));
    writer.move_subscription(Moves::new("tell", "run.failed", 1));
    append(&mut writer, SubscriptionOpened::new("tell", "run.failed").into()).await.unwrap();
    writer
}

fn moves(place: u64) -> Moves {
    let mut moves = Moves::new("tell", "run.failed", 1);
    moves.cursor = Some(Cursor::behind(place, None));
    moves
}

/// Spec: X2, X3, D8. Without an event, a subscription moves under the claim of its segment all the same; a claim tells
/// whether its holder died.
#[tokio::test(flavor = "multi_thread")]
async fn lost_claim_moves_no_subscription() {
    let server = server!();
    let url = server.database().await;
    let (one, other) = (open(&url).await, open(&url).await);
    let log: Arc<dyn EventLog> = Arc::new(one.log());
    let segment = segment_id("tell", 1);
    drop(begin(&log).await);
    let claim = log.claim(&segment).await.unwrap();
    assert!(!claim.is_takeover(), "it was released");
    let summary = log.summary(&segment).await.unwrap().unwrap();
    let mut writer = RunWriter::resume(Arc::clone(&log), summary, claim);
    writer.move_subscription_alone(moves(7)).await.unwrap();
    let stands = async || log.subscription("tell").await.unwrap().unwrap().cursor;
    assert_eq!(stands().await, Cursor::behind(7, None));
    let mut sql = connection(&url).await;
    sqlx::query("UPDATE backstop.runs SET owner = 'dead'").execute(&mut sql).await.unwrap();
    let taken = other.log().claim(&segment).await.unwrap();
    assert!(taken.is_takeover());
    let refused = writer.move_subscription_alone(moves(8)).await;
    assert!(matches!(refused, Err(LogError::Conflict { .. })), "{refused:?}");
    assert_eq!(stands().await, Cursor::behind(7, None));
    drop((writer, taken));
    one.close().await;
    other.close().await;
}
