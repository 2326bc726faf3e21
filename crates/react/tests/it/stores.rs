//! Stores that hang or panic, and the ones an agent has without being given any.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_error_store::{
    ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, Hold, Lookup, NewError, NewResult, Pruned,
    ResultEntry, ResultFilter, ResultRecord, ResultStore, Retention, StoreError, StoredError,
};
use backstop_provider::ScriptedProvider;
use backstop_react::{Agent, AgentBuilder, Limits};
use layer0::Timestamp;
use layer0::event::EventKind;
use layer0::id::{ErrorId, ResultId, SessionId};
use serde_json::json;

use crate::bench::*;

/// The fault of a store in every call.
#[derive(Debug, Clone, Copy)]
enum Bad {
    Hangs,
    Panics,
    PanicsAtOnce,
    Unprintable,
}

#[derive(Debug)]
struct Unprintable;

impl fmt::Display for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no words for it")
    }
}

impl std::error::Error for Unprintable {}

impl Bad {
    async fn answer<T>(self) -> Result<T, StoreError> {
        match self {
            Self::Hangs => pending().await,
            Self::Panics => panic!("the store is broken"),
            Self::PanicsAtOnce | Self::Unprintable => {
                Err(StoreError::Failed(Box::new(Unprintable)))
            }
        }
    }
}

/// The type that `async_trait` gives a call, so that the call can panic before it returns a future.
type Answer<'a, T> = std::pin::Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

impl ErrorStore for Bad {
    fn store<'a, 'b>(&'a self, _: NewError) -> Answer<'b, StoredError>
    where
        'a: 'b,
        Self: 'b,
    {
        if matches!(self, Self::PanicsAtOnce) {
            panic!("the store is broken");
        }
        Box::pin(self.answer())
    }

    fn keep<'a, 'b>(&'a self, _: ErrorRecord) -> Answer<'b, ()>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.answer())
    }

    fn keep_expired<'a, 's, 'i, 'b>(&'a self, _: &'s SessionId, _: &'i ErrorId) -> Answer<'b, ()>
    where
        'a: 'b,
        's: 'b,
        'i: 'b,
        Self: 'b,
    {
        Box::pin(self.answer())
    }

    fn get<'a, 's, 'i, 'b>(
        &'a self,
        _: &'s SessionId,
        _: &'i ErrorId,
    ) -> Answer<'b, Lookup<ErrorRecord>>
    where
        'a: 'b,
        's: 'b,
        'i: 'b,
        Self: 'b,
    {
        Box::pin(self.answer())
    }

    fn find<'a, 'i, 'b>(&'a self, _: &'i ErrorId) -> Answer<'b, Lookup<ErrorRecord>>
    where
        'a: 'b,
        'i: 'b,
        Self: 'b,
    {
        Box::pin(self.answer())
    }

    fn list<'a, 'b>(&'a self, _: ErrorFilter) -> Answer<'b, Vec<ErrorRecord>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.answer())
    }

    fn prune<'a, 'b>(&'a self, _: Retention, _: Timestamp) -> Answer<'b, Pruned>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.answer())
    }

    fn stats<'a, 'b>(&'a self, _: Option<u32>) -> Answer<'b, Vec<ErrorStats>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.answer())
    }

    fn hold(&self, _: &SessionId) -> Hold {
        panic!("the store is broken")
    }
}

#[async_trait]
impl ResultStore for Bad {
    async fn put(&self, _: NewResult) -> Result<ResultId, StoreError> {
        self.answer().await
    }

    async fn keep(&self, _: ResultRecord) -> Result<(), StoreError> {
        self.answer().await
    }

    async fn keep_expired(&self, _: &SessionId, _: &ResultId) -> Result<(), StoreError> {
        self.answer().await
    }

    async fn get(&self, _: &SessionId, _: &ResultId) -> Result<Lookup<ResultRecord>, StoreError> {
        self.answer().await
    }

    async fn find(&self, _: &ResultId) -> Result<Lookup<ResultRecord>, StoreError> {
        self.answer().await
    }

    async fn list(&self, _: ResultFilter) -> Result<Vec<ResultEntry>, StoreError> {
        self.answer().await
    }

    async fn prune(&self, _: Retention, _: Timestamp) -> Result<Pruned, StoreError> {
        self.answer().await
    }
}

/// Spec: S6, S11
#[tokio::test]
async fn a_bad_store_is_a_failing_store() {
    for (bad, why) in [
        (Bad::Hangs, "no answer within 5s"),
        (Bad::Panics, "it panicked: the store is broken"),
        (Bad::PanicsAtOnce, "it panicked: the store is broken"),
        (Bad::Unprintable, "it panicked: no words for it"),
    ] {
        let bench = Bench::new();
        let answers = vec![
            calls([call("c1", "broken", json!({"how": "long"}))]),
            calls([call("c2", "get_error_detail", json!({"error_id": "err_1"}))]),
            calls([call("c3", "long_text", json!({}))]),
            calls([call("c4", "get_tool_result", json!({"result_id": "res_1"}))]),
            says("done"),
        ];
        let agent = bench.agent(answers).tool(broken).tool(long_text);
        let agent = agent.error_store(bad).result_store(bad);
        let outcome = bench.run(agent).await.unwrap();
        assert_eq!(outcome.text(), "done", "{bad:?}");
        let texts = tool_texts(&outcome);
        assert!(texts[0].0.starts_with("Tool error: SQL_ERROR - first line\n"), "{}", texts[0].0);
        assert!(texts[0].0.contains("[Cut: 500 of 3011 characters shown"), "{}", texts[0].0);
        assert!(texts[2].0.contains("[Cut: 16384 of 20000 bytes shown"), "{bad:?}");
        let degraded: Vec<String> = bench
            .events(&outcome.run_id)
            .await
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::ErrorStoreDegraded(degraded) => Some(degraded.message.to_string()),
                _ => None,
            })
            .collect();
        assert_eq!(degraded.len(), 4, "{bad:?}: {degraded:?}");
        if !matches!(bad, Bad::PanicsAtOnce) {
            assert!(degraded.iter().all(|message| message.contains(why)), "{bad:?}: {degraded:?}");
        }
        let waited = if matches!(bad, Bad::Hangs) { 20 } else { 0 };
        assert_eq!(bench.elapsed(), Duration::from_secs(waited), "{bad:?}");
    }
}

/// Spec: S11
#[tokio::test]
async fn the_limit_of_a_store_can_be_set() {
    let bench = Bench::new();
    let answers = vec![calls([call("c1", "broken", json!({"how": "long"}))]), says("done")];
    let limits = Limits::new().store_timeout(Duration::from_millis(100));
    let agent = bench.agent(answers).tool(broken).error_store(Bad::Hangs).limits(limits);
    bench.run(agent).await.unwrap();
    assert_eq!(bench.elapsed(), Duration::from_millis(100));
}

/// Returns a long text.
#[backstop_tool::tool]
async fn long_text() -> Result<String, backstop_tool::ToolError> {
    Ok("x".repeat(20_000))
}

fn alone(bench: &Bench, answers: Vec<backstop_provider::ScriptedAnswer>) -> AgentBuilder {
    let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
    Agent::builder(ScriptedProvider::new(answers).with_clock(Arc::clone(&clock))).clock(clock)
}

fn tools(agent: AgentBuilder) -> Vec<String> {
    let agent = agent.build().unwrap();
    agent.definition().tools.iter().map(|tool| tool.name.to_string()).collect()
}

/// Spec: S7, L1
#[tokio::test]
async fn texts_are_kept_whole_without_a_store_given() {
    let bench = Bench::new();
    let answers = vec![
        calls([call("c1", "broken", json!({"how": "long"}))]),
        calls([call("c2", "get_error_detail", json!({"error_id": "${error_id.1}"}))]),
        calls([call("c3", "long_text", json!({}))]),
        calls([call(
            "c4",
            "get_tool_result",
            json!({"result_id": "${result_id.1}", "offset": 19_000}),
        )]),
        says("done"),
    ];
    let outcome = bench.run(alone(&bench, answers).tool(broken).tool(long_text)).await.unwrap();
    let texts = tool_texts(&outcome);
    assert!(texts[0].0.contains("[Error ID: err_"), "{}", texts[0].0);
    assert!(!texts[1].1 && texts[1].0.contains("trace\\ntrace"), "{}", texts[1].0);
    assert!(!texts[3].1 && texts[3].0.contains(&"x".repeat(1_000)), "{}", texts[3].0);
}

/// Spec: S7, T13
#[test]
fn detail_tools_need_a_tool_and_a_store() {
    let bench = Bench::new();
    let agent = || alone(&bench, vec![says("done")]);
    assert!(tools(agent()).is_empty());
    assert!(tools(agent().error_store(Bad::Hangs).result_store(Bad::Hangs)).is_empty());
    assert_eq!(tools(agent().tool(add)), ["add", "get_error_detail", "get_tool_result"]);
    assert_eq!(tools(agent().tool(add).without_error_store()), ["add", "get_tool_result"]);
    assert_eq!(tools(agent().tool(add).without_result_store()), ["add", "get_error_detail"]);
}

/// Returns more than the limit allows.
#[backstop_tool::tool]
async fn talk() -> Result<String, backstop_tool::ToolError> {
    Ok("\u{e4}".repeat(600))
}

/// Spec: L2. The preview is bounded by the limit, at a character, and says where to read on.
#[tokio::test]
async fn preview_keeps_the_limit_of_results() {
    let bench = Bench::new();
    let answers = vec![calls([call("c1", "talk", json!({}))]), says("done")];
    let agent = bench.agent(answers).tool(talk).limits(Limits::new().max_result_bytes(501));
    let outcome = bench.run(agent).await.unwrap();
    let read = tool_texts(&outcome)[0].0.clone();
    let (shown, note) = read.split_once('\n').unwrap();
    assert_eq!(shown, "\u{e4}".repeat(250));
    assert!(note.contains("1200 bytes in all, 500 shown") && note.contains("offset=500"), "{note}");
}
