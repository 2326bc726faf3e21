//! What a worker finds to go on with.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{EventLog, RunWriter, Seed};
use backstop_store_postgres::{Look, WorkerRow};
use layer0::event::{Actor, AgentRecord, EventKind, RunParked, RunStarted};

use crate::place::{Place, direct_and_pooled_checks};
use crate::support::open;

direct_and_pooled_checks![parked_runs_are_in_the_way_of_none];

/// Spec: J2w. Those that are not due do not count among the runs that are looked for, however many there are.
async fn parked_runs_are_in_the_way_of_none(place: Place) {
    let (database, url) = place.fresh().await;
    let left = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(left.log());
    let now = SystemClock.now();
    let record = async |number: usize, parked_for: Option<Duration>| {
        let mut writer = RunWriter::new(Arc::clone(&log), format!("run_{number}").into());
        let agent = AgentRecord::new("agent", "digest", serde_json::json!({"name": "agent"}));
        let started = RunStarted::new("go", format!("s-{number}").into(), agent);
        let parked = parked_for
            .map(|wait| RunParked::new(now.after(wait), "provider.rate_limited", "later").into());
        for kind in [EventKind::from(started)].into_iter().chain(parked) {
            writer.stage(&Seed::new("test"), now, Actor::Runtime, None, kind);
        }
        writer.commit().await.unwrap();
    };
    for number in 0..300 {
        record(number, Some(Duration::from_secs(3_600))).await;
    }
    record(300, Some(Duration::ZERO)).await;
    record(301, None).await;
    left.close().await;
    let worker = WorkerRow::new(vec![("agent".into(), "digest".into())], vec!["default".into()]);
    let found = async |look: Look<'_>| -> Vec<String> {
        let ready = database.queue().ready(&worker, look).await.unwrap();
        ready.into_iter().map(|ready| ready.run.to_string()).collect()
    };
    assert_eq!(found(Look::new(10)).await, ["run_300", "run_301"]);
    assert_eq!(found(Look::new(1)).await, ["run_300"]);
    assert_eq!(found(Look::new(10).paused(&["run_300"])).await, ["run_301"]);
    assert_eq!(found(Look::new(10).parked(false)).await, ["run_301"]);
}
