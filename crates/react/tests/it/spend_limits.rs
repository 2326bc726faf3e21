//! Spend limits for several runs together.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_provider::{ErrorKind, ScriptedAnswer, ScriptedProvider};
use backstop_react::{
    Agent, AgentBuilder, BuildError, LimitPeriod, LimitScope, Price, ReopenRequest, RunFailure,
    RunOutcome, RunRequest, SpendLimit, replay,
};
use backstop_state::MemoryStateStore;
use layer0::StateStore;
use layer0::error::StateError;
use layer0::event::{Event, EventKind};
use layer0::state::{Expected, Scope, StateEntry, StateQuery, StateWrite, Versioned};
use layer0::stop::Stop;
use layer0::usage::TokenUsage;
use serde_json::{Value, json};

use crate::bench::*;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// Cost of each answer.
const ANSWER_USD: f64 = 0.001;
const ANSWER_NANOUSD: u64 = 1_000_000;

fn answer() -> ScriptedAnswer {
    says("42").usage(TokenUsage::new(1_000, 0))
}

fn limit(scope: &str, per: LimitPeriod, max_cost_usd: f64) -> SpendLimit {
    SpendLimit::new(scope.parse().unwrap(), per, max_cost_usd)
}

/// A state store that keeps its writes, has a latency, and fails on demand.
#[derive(Default)]
struct Watched {
    store: MemoryStateStore,
    written: Mutex<Vec<Value>>,
    fails: Mutex<bool>,
    /// Number of writes that succeed, then of those that fail.
    breaks: Mutex<Option<(u32, u32)>>,
    /// Number of reads that fail next.
    unreadable: Mutex<u32>,
    far: Mutex<Option<VirtualClock>>,
}

impl Watched {
    fn written(&self) -> Vec<Value> {
        std::mem::take(&mut *self.written.lock().unwrap())
    }

    fn breaks(&self) -> bool {
        match &mut *self.breaks.lock().unwrap() {
            Some((0, 0)) | None => false,
            Some((0, failing)) => {
                *failing -= 1;
                true
            }
            Some((sound, _)) => {
                *sound -= 1;
                false
            }
        }
    }

    fn is_unreadable(&self) -> bool {
        let mut failing = self.unreadable.lock().unwrap();
        let is_next = *failing > 0;
        *failing = failing.saturating_sub(1);
        is_next
    }

    async fn balance(&self, scope: &str, key: &str) -> Value {
        let scope: Scope = scope.parse().unwrap();
        self.store.read(&scope, key).await.unwrap().unwrap().value.value()
    }
}

#[async_trait]
impl StateStore for Watched {
    async fn read(&self, scope: &Scope, key: &str) -> Result<Option<Versioned>, StateError> {
        if self.is_unreadable() {
            return Err(StateError::Other("the connection was reset".into()));
        }
        self.store.read(scope, key).await
    }

    async fn write(&self, write: StateWrite) -> Result<u64, StateError> {
        let far = self.far.lock().unwrap().clone();
        if let Some(clock) = far {
            clock.sleep(Duration::from_millis(4)).await;
        }
        if *self.fails.lock().unwrap() || self.breaks() {
            return Err(StateError::WriteFailed("the disk is full".into()));
        }
        let value = write.value.text().unwrap().value();
        let version = self.store.write(write).await?;
        self.written.lock().unwrap().push(value);
        Ok(version)
    }

    async fn delete(&self, scope: &Scope, key: &str, is: Expected) -> Result<bool, StateError> {
        self.store.delete(scope, key, is).await
    }

    async fn list(&self, query: StateQuery) -> Result<Vec<StateEntry>, StateError> {
        self.store.list(query).await
    }

    async fn search(&self, query: StateQuery, text: &str) -> Result<Vec<StateEntry>, StateError> {
        self.store.search(query, text).await
    }

    async fn scopes(&self, after: Option<&Scope>, limit: u32) -> Result<Vec<Scope>, StateError> {
        self.store.scopes(after, limit).await
    }

    async fn clear(&self, scope: &Scope) -> Result<u64, StateError> {
        self.store.clear(scope).await
    }
}

/// A bench whose agents share a state store.
struct Shared {
    bench: Bench,
    state: Arc<Watched>,
}

impl Shared {
    fn new() -> Self {
        Self { bench: Bench::new(), state: Arc::default() }
    }

    fn agent(&self, answers: Vec<ScriptedAnswer>) -> AgentBuilder {
        let state = Arc::clone(&self.state) as Arc<dyn StateStore>;
        let agent = self.bench.agent(answers).name("triage").shared_state_store(state);
        agent.price(Price::new(1.0, 1.0))
    }

    async fn run(&self, agent: Agent, request: RunRequest) -> Result<RunOutcome, RunFailure> {
        let outcome = on(&self.bench, async move { agent.run(request).await }).await;
        let run = outcome.as_ref().map_or_else(|it| &it.run_id, |it| &it.run_id);
        replay(&*self.bench.log, run).await.unwrap();
        outcome
    }

    /// Runs an agent that answers once; returns whether it did.
    async fn answers(&self, agent: AgentBuilder, request: RunRequest) -> bool {
        let outcome = self.run(agent.build().unwrap(), request).await.unwrap();
        match outcome.stop {
            Stop::Completed => true,
            Stop::BudgetExhausted { reason } => {
                assert_eq!(reason.as_str(), "budget.cost_usd");
                false
            }
            stop => panic!("{stop:?}"),
        }
    }
}

fn exhausted(events: &[Event]) -> Vec<Value> {
    let of = |event: &Event| match &event.kind {
        EventKind::BudgetExhausted(exhausted) => Some(json!(exhausted)),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

/// Spec: B4. The next run of the day is refused before its model is asked, and the record names the limit.
#[tokio::test]
async fn next_run_of_the_day_is_refused() {
    let shared = Shared::new();
    let agent = |answers| {
        let day = limit("agent", LimitPeriod::Day, ANSWER_USD);
        shared.agent(answers).spend_limit(day)
    };
    assert!(shared.answers(agent(vec![answer()]), RunRequest::new("a")).await);
    let refused = agent(vec![]).build().unwrap();
    let outcome = shared.run(refused, RunRequest::new("b")).await.unwrap();
    assert_eq!(outcome.usage.model_attempts, 0);
    let events = shared.bench.events(&outcome.run_id).await;
    let said = "spend limit of agent `triage` per day: 0.001 of 0.001 used";
    let expected = json!({"reason": "budget.cost_usd", "dimension": "cost_usd", "limit": 0.001, "used": 0.001, "message": said});
    assert_eq!(exhausted(&events), [expected]);
    assert!(!types(&events).contains(&"model.attempted"));
    assert_eq!(types(&events).last(), Some(&"run.finished"));
    // The run continues once there is room again.
    shared.bench.clock.set_time_of_day(DAY_MS);
    let next = agent(vec![answer()]).build().unwrap();
    let request = ReopenRequest::new(outcome.run_id.clone());
    let again = on(&shared.bench, async move { next.reopen(request).await }).await.unwrap();
    assert_eq!(again.text(), "42");
    replay(&*shared.bench.log, &again.run_id).await.unwrap();
    let tomorrow = shared.state.balance("limit:agent:triage", "2026-01-02").await;
    assert_eq!(tomorrow, ANSWER_NANOUSD);
}

/// Spec: B4
#[tokio::test]
async fn month_has_its_own_account() {
    let shared = Shared::new();
    let agent = || {
        let month = limit("global", LimitPeriod::Month, 1.5 * ANSWER_USD);
        shared.agent(vec![answer()]).spend_limit(month)
    };
    // The last is the first of February.
    for (later, answers) in [(0, true), (5, true), (5, false), (20, false), (1, true)] {
        shared.bench.clock.set_time_of_day(later * DAY_MS);
        assert_eq!(shared.answers(agent(), RunRequest::new("a")).await, answers, "{later} later");
    }
}

/// Spec: B4. Each scope counts its own runs.
#[tokio::test]
async fn scopes_are_counted_apart() {
    for (scope, other_name, other_session, other_tenant) in [
        ("agent", true, false, false),
        ("session", false, true, false),
        ("label:tenant", false, false, true),
        ("global", false, false, false),
    ] {
        let shared = Shared::new();
        let agent = |name: &'static str| {
            let day = limit(scope, LimitPeriod::Day, ANSWER_USD);
            shared.agent(vec![answer()]).name(name).spend_limit(day)
        };
        let request = |session: &'static str, tenant: &'static str| {
            RunRequest::new("a").session(session).label("tenant", tenant)
        };
        assert!(shared.answers(agent("one"), request("s-1", "acme")).await, "{scope}");
        assert!(!shared.answers(agent("one"), request("s-1", "acme")).await, "{scope}");
        let named = shared.answers(agent("two"), request("s-1", "acme")).await;
        assert_eq!(named, other_name, "{scope}: another agent");
        let elsewhere = shared.answers(agent("one"), request("s-2", "acme")).await;
        assert_eq!(elsewhere, other_session, "{scope}: another session");
        let labelled = shared.answers(agent("one"), request("s-1", "globex")).await;
        assert_eq!(labelled, other_tenant, "{scope}: another label");
    }
}

/// Spec: B4. A limit of a label is not for a run without it.
#[tokio::test]
async fn run_without_the_label_is_not_bounded() {
    let shared = Shared::new();
    for _ in 0..3 {
        let day = limit("label:tenant", LimitPeriod::Day, ANSWER_USD);
        let agent = shared.agent(vec![answer()]).spend_limit(day);
        assert!(shared.answers(agent, RunRequest::new("a").label("ticket", "7")).await);
    }
    assert!(shared.state.written().is_empty());
}

/// Spec: B4, O2, D15. What a run is filed under, those below it are too: the limit holds for them.
#[tokio::test]
async fn label_bounds_the_runs_below() {
    let shared = Shared::new();
    let mut spent = 0;
    for _ in 0..2 {
        let day = limit("label:tenant", LimitPeriod::Day, ANSWER_USD);
        let below = shared.agent(vec![answer()]).name("below").spend_limit(day).build().unwrap();
        let asked = calls([call("c1", "below", json!({"input": "What?"}))]);
        let root = shared.agent(vec![asked, says("done")]).tool(below.as_tool("Knows."));
        assert!(shared.answers(root, RunRequest::new("a").label("tenant", "acme")).await);
        // One to reserve, and one to settle.
        spent += shared.state.written().len() / 2;
    }
    assert_eq!(spent, 1, "the second one is refused");
}

/// Spec: B4, R8. Retries and another provider reserve too, and what a failed attempt was billed counts.
#[tokio::test]
async fn every_attempt_is_reserved_and_settled() {
    let shared = Shared::new();
    let usage = TokenUsage::new(1_500, 0);
    let fails = || fails(ErrorKind::Transient).usage(usage);
    let clock = Arc::new(shared.bench.clock.clone());
    let second = ScriptedProvider::new([says("42").usage(usage)]).with_clock(clock);
    let day = limit("agent", LimitPeriod::Day, 1.0);
    let agent = shared.agent(vec![fails(), fails(), fails()]).fallback(second).spend_limit(day);
    assert!(shared.answers(agent, RunRequest::new("a").run("run_a".into())).await);
    let written = shared.state.written();
    let (reserved, settled): (Vec<_>, Vec<_>) =
        (written.iter().step_by(2).collect(), written.iter().skip(1).step_by(2).collect());
    assert_eq!((reserved.len(), settled.len()), (4, 4), "{written:?}");
    for (made, (reserved, settled)) in (0_u64..).zip(reserved.into_iter().zip(settled)) {
        // About a thousand tokens of an answer.
        let may_cost = made * 1_500_000 + 1_000_000..(made + 1) * 1_500_000;
        assert!(may_cost.contains(&reserved.as_u64().unwrap()), "{reserved}");
        assert_eq!(*settled, (made + 1) * 1_500_000);
    }
}

/// Spec: B4. A limit that is reached between two attempts ends the run there.
#[tokio::test]
async fn retry_is_refused_once_the_limit_is_reached() {
    let shared = Shared::new();
    let fails = fails(ErrorKind::Transient).usage(TokenUsage::new(1_000, 0));
    let day = limit("agent", LimitPeriod::Day, ANSWER_USD);
    let agent = shared.agent(vec![fails, answer()]).spend_limit(day).build().unwrap();
    let outcome = shared.run(agent, RunRequest::new("a")).await.unwrap();
    assert!(matches!(outcome.stop, Stop::BudgetExhausted { .. }), "{:?}", outcome.stop);
    assert_eq!(outcome.usage.model_attempts, 1);
    let events = shared.bench.events(&outcome.run_id).await;
    assert_eq!(exhausted(&events).len(), 1);
}

/// Spec: B4. What is refused under one limit is not reserved under another.
#[tokio::test]
async fn refused_attempt_reserves_nothing() {
    let shared = Shared::new();
    let agent = || {
        let month = limit("agent", LimitPeriod::Month, 1.0);
        let day = limit("agent", LimitPeriod::Day, ANSWER_USD);
        shared.agent(vec![answer()]).spend_limit(month).spend_limit(day)
    };
    assert!(shared.answers(agent(), RunRequest::new("a")).await);
    assert!(!shared.answers(agent(), RunRequest::new("a")).await);
    let month = shared.state.balance("limit:agent:triage", "2026-01").await;
    assert_eq!(month, ANSWER_NANOUSD);
}

/// Spec: B4. Runs at once spend at most the limit and one response each.
#[tokio::test]
async fn runs_at_once_overshoot_by_one_response_each() {
    let shared = Shared::new();
    let (max, runs) = (4, 16);
    let start = || {
        let day = limit("global", LimitPeriod::Day, f64::from(max) * ANSWER_USD);
        let answers = (0..8).map(|n| {
            calls([call("c", "add", json!({"x": n, "y": 1}))]).usage(TokenUsage::new(1_000, 0))
        });
        let answers = answers.chain([answer()]).collect();
        let agent = shared.agent(answers).tool(add).spend_limit(day).build().unwrap();
        on(&shared.bench, async move { agent.run("a").await.unwrap() })
    };
    let outcomes = futures_util::future::join_all((0..runs).map(|_| start())).await;
    let made: u32 = outcomes.iter().map(|outcome| outcome.usage.model_attempts).sum();
    assert!((max..=max + runs).contains(&made), "{made} responses");
    assert!(outcomes.iter().all(|it| matches!(it.stop, Stop::BudgetExhausted { .. })));
    let balance = shared.state.balance("limit:global:all", "2026-01-01").await;
    let spent = u64::from(made) * ANSWER_NANOUSD;
    assert_eq!(balance, spent, "none is lost");
}

/// Spec: B4. Where the store fails no attempt is made; the run can be opened again.
#[tokio::test]
async fn failing_store_lets_no_attempt_through() {
    let shared = Shared::new();
    let agent = |answers| {
        let day = limit("agent", LimitPeriod::Day, 1.0);
        shared.agent(answers).spend_limit(day).build().unwrap()
    };
    *shared.state.fails.lock().unwrap() = true;
    let failure = shared.run(agent(vec![]), RunRequest::new("a")).await.unwrap_err();
    assert_eq!((failure.code(), failure.usage.model_attempts), ("state.write_failed", 0));
    let chain = layer0::failure::Chain(failure.error.as_cause()).to_string();
    let said = "the spend limit of agent `triage` per day could not be looked at: state write failed: \
                the disk is full";
    assert_eq!(chain, said);
    *shared.state.fails.lock().unwrap() = false;
    let (next, request) = (agent(vec![answer()]), ReopenRequest::new(failure.run_id));
    let again = on(&shared.bench, async move { next.reopen(request).await }).await.unwrap();
    assert_eq!(again.text(), "42");
}

/// Spec: B4, D5. What a dead process had reserved counts as spent, as it was stored before accounts were numbers too.
#[tokio::test]
async fn lost_reservation_counts_as_spent() {
    let shared = Shared::new();
    let (scope, key) = ("limit:agent:triage".parse::<Scope>().unwrap(), "2026-01-01");
    let lost = json!({"spent_nanousd": 5, "reserved": {"run_a": 7, "run_b": 11}});
    shared.state.store.write(StateWrite::new(scope, key, lost)).await.unwrap();
    let day = limit("agent", LimitPeriod::Day, 1.0);
    let agent = shared.agent(vec![answer()]).spend_limit(day);
    assert!(shared.answers(agent, RunRequest::new("a").run("run_a".into())).await);
    let balance = shared.state.balance("limit:agent:triage", key).await;
    assert_eq!(balance, 23 + ANSWER_NANOUSD);
}

/// Spec: B4. Others' reservations count.
#[tokio::test]
async fn reserved_amounts_count_as_used() {
    let shared = Shared::new();
    let (scope, key) = ("limit:agent:triage".parse::<Scope>().unwrap(), "2026-01-01");
    let held = json!({"spent_nanousd": 5, "reserved": {"run_b": ANSWER_NANOUSD - 5}});
    shared.state.store.write(StateWrite::new(scope, key, held)).await.unwrap();
    let day = limit("agent", LimitPeriod::Day, ANSWER_USD);
    assert!(!shared.answers(shared.agent(vec![]).spend_limit(day), RunRequest::new("a")).await);
}

/// Spec: B4. What could not be settled is sent again, by itself or with what the account writes next.
#[tokio::test]
async fn failed_settlement_does_not_stay_charged() {
    for (failing, by_itself) in [(4, true), (100, false)] {
        let shared = Shared::new();
        *shared.state.breaks.lock().unwrap() = Some((1, failing));
        let day = limit("agent", LimitPeriod::Day, 1.0);
        let answer = || says("42").usage(TokenUsage::new(1_500, 0));
        let agent = shared.agent(vec![answer(), answer()]).spend_limit(day).build().unwrap();
        let first = shared.run(agent.clone(), RunRequest::new("a")).await.unwrap();
        assert_eq!(first.text(), "42", "the run is over all the same");
        let clock = shared.bench.clock.clone();
        on(&shared.bench, async move { clock.sleep(Duration::from_secs(60)).await }).await;
        let reserved = shared.state.balance("limit:agent:triage", "2026-01-01").await;
        assert_eq!(reserved == 1_500_000, by_itself, "{reserved}");
        *shared.state.breaks.lock().unwrap() = None;
        shared.run(agent, RunRequest::new("b")).await.unwrap();
        let balance = shared.state.balance("limit:agent:triage", "2026-01-01").await;
        assert_eq!(balance, 2 * 1_500_000);
    }
}

/// Spec: B4. A refund is not lost to a read that fails before it is written.
#[tokio::test]
async fn failed_read_keeps_what_is_owed() {
    let shared = Shared::new();
    *shared.state.breaks.lock().unwrap() = Some((1, 100));
    let day = limit("agent", LimitPeriod::Day, ANSWER_USD / 2.0);
    let half = says("42").usage(TokenUsage::new(500, 0));
    let agent = shared.agent(vec![half]).spend_limit(day).build().unwrap();
    shared.run(agent.clone(), RunRequest::new("a")).await.unwrap();
    let minute = || {
        let clock = shared.bench.clock.clone();
        on(&shared.bench, async move { clock.sleep(Duration::from_secs(60)).await })
    };
    minute().await;
    // The refund that failed is sent with the next reservation.
    *shared.state.breaks.lock().unwrap() = None;
    *shared.state.unreadable.lock().unwrap() = 1;
    let refused = shared.run(agent, RunRequest::new("b")).await.unwrap_err();
    assert_eq!(refused.code(), "state.other");
    minute().await;
    let balance = shared.state.balance("limit:agent:triage", "2026-01-01").await;
    assert_eq!(balance, ANSWER_NANOUSD / 2);
}

/// Spec: B4. Runs of one process wait for few writes, however many they are.
#[tokio::test]
async fn runs_at_once_share_their_writes() {
    let shared = Shared::new();
    *shared.state.far.lock().unwrap() = Some(shared.bench.clock.clone());
    let day = limit("global", LimitPeriod::Day, 1_000.0);
    let answers = (0..200).map(|_| answer()).collect();
    let agent = shared.agent(answers).spend_limit(day).build().unwrap();
    let start = || {
        let agent = agent.clone();
        on(&shared.bench, async move { agent.run("a").await.unwrap() })
    };
    futures_util::future::join_all((0..200).map(|_| start())).await;
    let balance = shared.state.balance("limit:global:all", "2026-01-01").await;
    assert_eq!(balance, 200 * ANSWER_NANOUSD);
    let writes = shared.state.written().len();
    assert!(writes <= 20, "{writes} writes");
    assert!(shared.bench.elapsed() < Duration::from_millis(100), "{:?}", shared.bench.elapsed());
}

/// Spec: B4. What was reserved for a run that is gone before it asked its model.
#[tokio::test]
async fn reservation_of_a_dropped_run_is_given_back() {
    let shared = Shared::new();
    *shared.state.far.lock().unwrap() = Some(shared.bench.clock.clone());
    let day = limit("agent", LimitPeriod::Day, 1.0);
    let agent = shared.agent(vec![answer()]).spend_limit(day).build().unwrap();
    let clock = shared.bench.clock.clone();
    let dropped = async move {
        let stream = agent.stream("a");
        clock.sleep(Duration::from_millis(2)).await;
        drop(stream);
        clock.sleep(Duration::from_secs(60)).await;
    };
    on(&shared.bench, dropped).await;
    assert_eq!(shared.state.balance("limit:agent:triage", "2026-01-01").await, 0);
}

/// Spec: B4. Names that are no scope, and long ones, have an account of their own.
#[tokio::test]
async fn any_label_has_an_account() {
    let shared = Shared::new();
    for tenant in ["a".repeat(256), format!("{}b", "a".repeat(255))] {
        for answers in [true, false] {
            let day = limit("label:tenant", LimitPeriod::Day, ANSWER_USD);
            let agent = shared.agent(vec![answer()]).spend_limit(day);
            let request = RunRequest::new("a").label("tenant", &tenant);
            assert_eq!(shared.answers(agent, request).await, answers);
        }
    }
}

/// Spec: B4
#[tokio::test]
async fn lower_of_two_like_limits_holds() {
    let shared = Shared::new();
    let agent = || {
        let higher = limit("agent", LimitPeriod::Day, 1.0);
        let lower = limit("agent", LimitPeriod::Day, ANSWER_USD);
        shared
            .agent(vec![answer()])
            .spend_limit(higher.clone())
            .spend_limit(lower)
            .spend_limit(higher)
    };
    assert!(shared.answers(agent(), RunRequest::new("a")).await);
    assert!(!shared.answers(agent(), RunRequest::new("a")).await);
}

/// Spec: B4, E12
#[test]
fn limits_that_cannot_be_kept_are_refused() {
    let day = |max| SpendLimit::new(LimitScope::Agent, LimitPeriod::Day, max);
    let agent = || Agent::builder(ScriptedProvider::saying(["42"]));
    let priced = || agent().price(Price::new(1.0, 1.0)).state_store(MemoryStateStore::new());
    let built = |agent: AgentBuilder| agent.build().map(drop);
    assert!(built(priced().spend_limit(day(1.0))).is_ok());
    for amount in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = built(priced().spend_limit(day(amount))).unwrap_err();
        let text = layer0::failure::Chain(&refused).to_string();
        assert!(text.contains("`limit.max_cost_usd`"), "{amount}: {text}");
    }
    let unpriced = agent().state_store(MemoryStateStore::new()).spend_limit(day(1.0));
    assert!(matches!(built(unpriced), Err(BuildError::UnknownPrice { .. })));
    let unkept = agent().price(Price::new(1.0, 1.0)).spend_limit(day(1.0));
    assert!(matches!(built(unkept), Err(BuildError::MissingStateStore(_))));
}
