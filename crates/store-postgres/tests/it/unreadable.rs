//! Runs whose rows cannot be read.

use std::sync::Arc;

use backstop_event_log::{Erasures, Log, RunWriter};
use layer0::event::Warning;
use sqlx::AssertSqlSafe;

use crate::support::{append_at, connection, open, over_on, server, started};

async fn break_row(url: &str, change: &str) {
    let broken = format!("UPDATE backstop.runs SET {change}");
    let mut sql = connection(url).await;
    sqlx::raw_sql(AssertSqlSafe(broken)).execute(&mut sql).await.unwrap();
}

/// Spec: D11, D1. Where an event is erased too, the others and the columns of the row say what the run is.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_row_is_rebuilt_beside_erased_events() {
    let server = server!();
    for seq in [1, 2] {
        let url = server.database().await;
        let database = open(&url).await;
        over_on(&database, 0, "run_1", started("s-1")).await;
        let (log, run) = (database.log(), "run_1".into());
        let whole = log.summary(&run).await.unwrap().unwrap();
        log.erase(&run, seq).await.unwrap();
        break_row(&url, "summary = '{'").await;
        let rebuilt = log.summary(&run).await.unwrap().unwrap();
        assert_eq!((rebuilt.state, &rebuilt.session), (whole.state, &whole.session));
        assert_eq!((rebuilt.last_seq, rebuilt.head), (whole.last_seq, whole.head));
        // A record that is broken too is not taken for the run.
        break_row(&url, "head = decode(repeat('00', 32), 'hex')").await;
        assert!(log.summary(&run).await.is_err());
    }
}

/// Spec: D11, D1
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_row_keeps_time_of_erased_events() {
    let url = server!().database().await;
    let database = open(&url).await;
    let mut writer = RunWriter::new(Arc::new(database.log()), "run_1".into());
    append_at(&mut writer, 0, vec![started("s-1"), Warning::new("public").into()]).await;
    append_at(&mut writer, 9_000, vec![Warning::new("private").into()]).await;
    let (log, run) = (database.log(), "run_1".into());
    let whole = log.summary(&run).await.unwrap().unwrap();
    drop(writer);
    log.erase(&run, 3).await.unwrap();
    break_row(&url, "summary = '{'").await;
    assert_eq!(log.summary(&run).await.unwrap(), Some(whole));
}
