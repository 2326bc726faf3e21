//! The contract of every tool.

use std::sync::Arc;

use backstop_tool::{Admitted, Grants, Tool, ToolContext, Toolset};
use futures_util::future::join_all;
use layer0::{JsonText, Timestamp};

use super::suite::{Suite, checks};

/// A tool with a call that succeeds.
#[derive(Clone)]
pub struct ToolSample {
    tool: Arc<dyn Tool>,
    arguments: JsonText,
    grants: Arc<Grants>,
}

impl ToolSample {
    /// Combines a tool with arguments with which it succeeds.
    pub fn new(tool: Arc<dyn Tool>, arguments: impl Into<JsonText>) -> Self {
        Self { tool, arguments: arguments.into(), grants: Arc::new(Grants::none()) }
    }

    /// Grants the needs of the call.
    #[must_use]
    pub fn granting(mut self, grants: Grants) -> Self {
        self.grants = Arc::new(grants);
        self
    }

    /// Admits the call, as an agent does.
    fn admitted(&self) -> Admitted {
        let mut tools = Toolset::new();
        let added = tools.add(Arc::clone(&self.tool));
        added.unwrap_or_else(|error| panic!("it cannot be registered: {error}"));
        let name = &self.tool.spec().name;
        let admitted = tools.admit(name, self.arguments.clone(), &self.grants);
        admitted.unwrap_or_else(|error| panic!("the sample does not fit: {error}"))
    }

    /// Calls the tool, and checks its output against its spec.
    async fn call(&self, call: &str) {
        let admitted = self.admitted();
        let far = Timestamp::from_millis(i64::MAX / 2);
        let mut context = ToolContext::new("run_1".into(), "s".into(), call.into(), far);
        context.granted = Arc::clone(admitted.needs());
        let called = admitted.tool().call(&admitted.arguments, &context).await;
        let output = called.unwrap_or_else(|error| panic!("the sample fails: {error:?}"));
        let fits = admitted.check_output(&output);
        assert!(fits.is_ok(), "the output is not what the tool declares: {fits:?}");
    }
}

/// Checks tools against the contract of [`Tool`]: it can be registered, has the same spec at every call, and keeps to
/// its spec. `make` makes a tool and a harmless call for each trial.
///
/// Specification: T1, T10, T13, Y1.
pub fn tool(make: impl AsyncFn() -> ToolSample + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            answers_as_it_declares,
            answers_calls_at_once,
            can_be_registered,
            is_described,
            names_what_is_denied,
            needs_the_same_for_the_same_call,
            says_the_same_of_itself_at_every_call,
            survives_a_dropped_call,
        ],
    )
}

async fn can_be_registered(sample: ToolSample) {
    let mut tools = Toolset::new();
    let added = tools.add(Arc::clone(&sample.tool));
    assert!(added.is_ok(), "{added:?}");
    assert!(tools.add(sample.tool).is_err(), "its name is its own");
}

/// The model chooses tools by their descriptions.
async fn is_described(sample: ToolSample) {
    let spec = sample.tool.spec();
    assert!(!spec.description.trim().is_empty(), "`{}` has no description", spec.name);
}

/// A list of tools that changes inside of a session breaks prompt caches.
async fn says_the_same_of_itself_at_every_call(sample: ToolSample) {
    let of = |tool: &dyn Tool| (tool.spec().clone(), tool.stores_errors());
    let before = of(&*sample.tool);
    for call in ["c1", "c2", "c3"] {
        sample.call(call).await;
        assert_eq!(of(&*sample.tool), before);
    }
}

async fn needs_the_same_for_the_same_call(sample: ToolSample) {
    let needs = || Arc::clone(sample.admitted().needs());
    let first = needs();
    assert_eq!(needs(), first);
    sample.call("c1").await;
    assert_eq!(needs(), first, "after a call, too");
    let dispatch = sample.admitted().dispatch().cloned();
    assert_eq!(sample.admitted().dispatch(), dispatch.as_ref(), "and starts the same");
}

async fn names_what_is_denied(sample: ToolSample) {
    let admitted = sample.admitted();
    for need in admitted.needs().iter() {
        let denied = sample.tool.describe_denied_need(&admitted.arguments, need);
        assert!(!denied.trim().is_empty(), "a denial of `{need}` says nothing");
    }
    let declared = &sample.tool.spec().capabilities;
    let nothing = declared.is_empty() && admitted.needs().is_empty();
    let mut tools = Toolset::new();
    tools.add(Arc::clone(&sample.tool)).expect("it can be registered");
    let without = tools.admit(&sample.tool.spec().name, sample.arguments, &Grants::none());
    assert_eq!(without.is_ok(), nothing, "what it needs, it needs a grant for");
}

async fn answers_as_it_declares(sample: ToolSample) {
    sample.call("c1").await;
}

/// Calls of one batch run concurrently.
async fn answers_calls_at_once(sample: ToolSample) {
    let calls = (0..4).map(|number| {
        let sample = sample.clone();
        async move { sample.call(&format!("c{number}")).await }
    });
    join_all(calls).await;
}

/// A call is dropped at its timeout and when its run is cancelled.
async fn survives_a_dropped_call(sample: ToolSample) {
    drop(sample.call("c1"));
    {
        let call = sample.call("c2");
        tokio::select! {
            biased;
            () = call => {}
            () = std::future::ready(()) => {}
        }
    }
    sample.call("c3").await;
}
