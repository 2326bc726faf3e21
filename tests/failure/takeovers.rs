//! Runs that another process takes over between what is recorded and what follows from it.

mod agents;
mod careful;
mod deliveries;
mod expiring;
mod processes;
mod trees;

use std::sync::Arc;

use backstop_testkit::PostgresServer;
use backstop_testkit::contract::{ActingRun, takeovers};

use self::careful::Careful;
use self::deliveries::Told;
use self::expiring::Expiring;
use self::processes::{SharedFile, SharedServer};
use self::trees::{Flow, Tree};

const RUN: &str = "run_1";

async fn on_sqlite(run: impl ActingRun + 'static, once: &[&str], appends: usize) {
    let times = takeovers(SharedFile::open, Arc::new(run), once).await;
    assert!(times >= appends, "{times} appends");
}

async fn on_postgres(run: impl ActingRun + 'static, once: &[&str]) {
    let Some(server) = PostgresServer::shared() else { return };
    takeovers(|| SharedServer::open(server), Arc::new(run), once).await;
}

/// Spec: D8
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_agents_act_no_more_sqlite() {
    on_sqlite(Tree, &["pay", "sign", "wipe"], 16).await;
}

/// Spec: D8, O6
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_workflows_act_no_more_sqlite() {
    on_sqlite(Flow, &["pay", "sign", "wipe"], 16).await;
}

/// Spec: D8, L2, M1, T14, T16
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_careful_agents_act_no_more_sqlite() {
    on_sqlite(Careful, &["charge", "file", "ship"], 16).await;
}

/// Spec: A4, D8
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_expiries_act_no_more_sqlite() {
    on_sqlite(Expiring, &["pay"], 6).await;
}

/// Spec: D8, X2
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_deliveries_act_no_more_sqlite() {
    on_sqlite(Told, &[], 8).await;
}

/// Spec: J2
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_agents_act_no_more_postgres() {
    on_postgres(Tree, &["pay", "sign", "wipe"]).await;
}

/// Spec: J2, O6
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_workflows_act_no_more_postgres() {
    on_postgres(Flow, &["pay", "sign", "wipe"]).await;
}

/// Spec: J2, L2, M1, T14, T16
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_careful_agents_act_no_more_postgres() {
    on_postgres(Careful, &["charge", "file", "ship"]).await;
}

/// Spec: A4, J2
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_expiries_act_no_more_postgres() {
    on_postgres(Expiring, &["pay"]).await;
}

/// Spec: J2, X2
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_deliveries_act_no_more_postgres() {
    on_postgres(Told, &[]).await;
}
