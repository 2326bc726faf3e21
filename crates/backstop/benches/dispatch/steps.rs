//! What a step of a workflow costs beside a dispatch of its operator, an agent with a log.

use std::path::Path;
use std::sync::Arc;

use backstop::layer0::operator::{Context, Task};
use backstop::{
    Agent, Database, Durability, EventLog, LocalOrchestrator, MemoryLog, Orchestrator,
    ScriptedAnswer, ScriptedProvider, Sequence, Workflow,
};
use backstop_testkit::measure::{Goal, Row, Spread, interleaved, ratios};
use tokio::runtime::Runtime;

/// How many steps a workflow has, and how many are dispatched beside it.
const STEPS: usize = 100;

const GOAL: Goal = Goal::AtMost(1.2);

/// Where records are kept: each way has a store of its own, and both grow alike.
#[derive(Clone, Copy)]
enum Store {
    Memory,
    Sqlite,
}

/// A store that is open.
struct Open {
    log: Arc<dyn EventLog>,
    _database: Option<(Database, tempfile::TempDir)>,
}

impl Store {
    fn open(self, runtime: &Runtime) -> Open {
        match self {
            Self::Memory => Open { log: Arc::new(MemoryLog::new()), _database: None },
            Self::Sqlite => {
                let folder = tempfile::tempdir().expect("a folder can be made");
                let file: &Path = &folder.path().join("steps.db");
                let database = runtime.block_on(Database::open(file, Durability::Normal));
                let database = database.expect("a new file can be opened");
                Open { log: Arc::new(database.log()), _database: Some((database, folder)) }
            }
        }
    }
}

fn orchestrator(log: &Arc<dyn EventLog>) -> LocalOrchestrator {
    let model = ScriptedProvider::from_fn(|_| ScriptedAnswer::saying("done"));
    let agent = Agent::builder(model).name("agent").shared_log(Arc::clone(log)).build();
    let steps = Sequence::new("steps", [const { "agent" }; STEPS]);
    let orchestrator = LocalOrchestrator::builder()
        .operator(agent.expect("the agent is complete"))
        .operator(Workflow::new(steps, Arc::clone(log)))
        .build();
    orchestrator.expect("the names can be called")
}

/// So many runs of one turn, as the steps of a workflow and dispatched one after the other.
pub(crate) fn steps(runtime: &Runtime, rounds: usize) -> [Row; 2] {
    let stores = [(Store::Memory, "a log in memory"), (Store::Sqlite, "SQLite `normal`")];
    stores.map(|(store, name)| {
        let dispatch = |operator: &'static str, times: usize| {
            let open = store.open(runtime);
            let orchestrator = orchestrator(&open.log);
            move || {
                let _open = &open;
                runtime.block_on(async {
                    for _ in 0..times {
                        let task = Task::text("hello");
                        let answer = orchestrator.dispatch(operator, task, Context::root()).await;
                        assert_eq!(answer.expect("nothing fails").output, "done");
                    }
                });
            }
        };
        let (mut stepped, mut alone) = (dispatch("steps", 1), dispatch("agent", STEPS));
        let [stepped, alone] = interleaved(rounds, [&mut stepped, &mut alone]);
        let name = format!("a step of a workflow to a dispatch, {name}");
        Row::new(name, Spread::of(ratios(&stepped, &alone)), GOAL)
    })
}
