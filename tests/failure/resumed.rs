//! Generated workflows and trees of agents whose process dies behind each append: the resumed one answers as the
//! undisturbed one.

mod agents;
mod plan;
mod process;
mod workflows;

use std::cell::Cell;
use std::sync::Arc;

use backstop::layer0::event::EventKind;
use backstop::store_postgres::Options;
use backstop::{Database, EventLog, MemoryLog, PostgresDatabase, read_events};
use backstop_testkit::PostgresServer;
use backstop_testkit::contract::{Acts, ResumableRun, cuts};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

use self::agents::{Tree, trees};
use self::plan::{Case, Leaf, Plan, cases, first_cases};
use self::process::ROOT;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn in_memory() -> Arc<dyn EventLog> {
    Arc::new(MemoryLog::new())
}

async fn on_sqlite() -> Arc<dyn EventLog> {
    Arc::new(Database::in_memory().await.unwrap().log())
}

/// Draws trees of runs, and cuts each at every append. Returns the number of appends.
fn check_drawn<T: ResumableRun>(trees: impl Strategy<Value = T>, count: u32) -> usize {
    let config = Config { failure_persistence: None, ..Config::with_cases(count) };
    let appends = Cell::new(0);
    let checked = TestRunner::new(config).run(&trees, |tree| {
        appends.set(appends.get() + block_on(cuts(in_memory, &tree)));
        Ok(())
    });
    checked.unwrap_or_else(|error| panic!("{error}"));
    appends.get()
}

/// Returns a workflow with every kind of step.
fn whole_workflow() -> Case {
    let leaves = [Leaf::Payer, Leaf::Picky, Leaf::Away, Leaf::Signer, Leaf::Parker, Leaf::Missing];
    let routes = [true, false]
        .map(|by_operator| Plan::Route { by_operator, steps: [Leaf::Talker, Leaf::Plain] });
    let plans = vec![
        Plan::Collected(leaves.map(Plan::Step).to_vec()),
        Plan::Collected(routes.into()),
        Plan::Lines(vec![vec![Leaf::Plain, Leaf::Talker], vec![Leaf::Secret]]),
        Plan::Unnamed(vec![Leaf::Talker, Leaf::Plain]),
        Plan::Map(Leaf::Talker),
        Plan::Collected(vec![Plan::Supervise(Leaf::Lost)]),
    ];
    Case { plan: Plan::Nested(Box::new(Plan::Sequence(plans))), model_calls: None }
}

/// Returns generated cases, the same ones each time, with the events that they write: those of the root first, then those
/// of each run in the order of the dispatches.
pub(crate) fn generated_records(count: usize) -> Vec<(String, Vec<Value>)> {
    let mut runner = TestRunner::deterministic();
    let mut records = Vec::new();
    while records.len() < count {
        let case = first_cases().new_tree(&mut runner).unwrap().current();
        if case.has_budget() && !case.is_used_alike() {
            continue;
        }
        let events = block_on(async {
            let log = in_memory().await;
            let _answer = case.perform(Arc::clone(&log), Acts::default()).await;
            events_of_tree(&*log).await
        });
        records.push((format!("{case:?}"), events));
    }
    records
}

async fn events_of_tree(log: &dyn EventLog) -> Vec<Value> {
    let (mut runs, mut found) = (vec![ROOT.into()], Vec::new());
    while let Some(run) = runs.pop() {
        if log.summary(&run).await.unwrap().is_none() {
            continue;
        }
        let (_, events) = read_events(log, &run).await.unwrap();
        for event in &events {
            if let EventKind::OperatorDispatched(dispatched) = &event.kind {
                runs.push(dispatched.run.clone());
            }
        }
        found.extend(events.iter().map(|event| serde_json::to_value(event).unwrap()));
    }
    found
}

/// Spec: O6, D5
#[test]
fn resumed_workflows_answer_as_undisturbed_ones() {
    let appends = check_drawn(cases(), 100);
    assert!(appends > 100, "{appends}");
}

/// Spec: O2, O3, D5
#[test]
fn resumed_agents_answer_as_undisturbed_ones() {
    let appends = check_drawn(trees(), 40);
    assert!(appends > 300, "{appends}");
}

/// Steps run at the same time, and the first failure ends the others.
///
/// Spec: O6, D5
#[test]
fn failures_end_the_same_steps_after_a_crash() {
    use Leaf::{Lost, Missing, Payer, Picky};
    let step = Plan::Step;
    let nested = |leaf| Plan::Nested(Box::new(Plan::Step(leaf)));
    for plans in [
        vec![step(Picky), nested(Payer)],
        vec![nested(Missing), nested(Payer)],
        vec![step(Missing), step(Payer)],
        vec![step(Lost), step(Picky), Plan::Sequence(vec![step(Payer)])],
    ] {
        let case = Case { plan: Plan::Together(plans), model_calls: None };
        assert!(block_on(cuts(in_memory, &case)) > 2);
    }
}

/// Spec: O6, D5
#[tokio::test]
async fn resumed_workflows_answer_alike_on_sqlite() {
    assert!(cuts(on_sqlite, &whole_workflow()).await > 20);
}

/// Spec: O2, O3, D5
#[tokio::test]
async fn resumed_agents_answer_alike_on_sqlite() {
    assert!(cuts(on_sqlite, &Tree::with_everything()).await > 20);
}

/// Spec: J2, O6, D5
#[tokio::test]
async fn resumed_workflows_answer_alike_on_postgres() {
    let Some(server) = PostgresServer::shared() else { return };
    cuts(|| on_postgres(server), &whole_workflow()).await;
}

/// Spec: J2, O2, O3, D5
#[tokio::test]
async fn resumed_agents_answer_alike_on_postgres() {
    let Some(server) = PostgresServer::shared() else { return };
    cuts(|| on_postgres(server), &Tree::with_everything()).await;
}

async fn on_postgres(server: &PostgresServer) -> Arc<dyn EventLog> {
    let options = Options::new(&server.database().await).unwrap().connections(3);
    Arc::new(PostgresDatabase::connect_with(options).await.unwrap().log())
}
