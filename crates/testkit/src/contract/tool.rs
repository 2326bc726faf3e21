//! The contract of every tool.

mod misfits;

use std::any::Any;
use std::sync::Arc;

use backstop_tool::{Admitted, Arguments, Grants, Probe, Tool, ToolContext, ToolError, Toolset};
use futures_util::future::join_all;
use layer0::{JsonText, Timestamp};

use self::misfits::misfits;
use super::dropped::{assert_leaves_no_task, let_others_run};
use super::suite::{Suite, checks};

/// A tool with a call that succeeds.
#[derive(Clone)]
pub struct ToolSample {
    tool: Arc<dyn Tool>,
    arguments: JsonText,
    grants: Arc<Grants>,
    effects: Option<Arc<dyn Fn() -> u64 + Send + Sync>>,
    state: Option<Arc<dyn Any + Send + Sync>>,
}

impl ToolSample {
    /// Combines a tool with arguments with which it succeeds.
    pub fn new(tool: Arc<dyn Tool>, arguments: impl Into<JsonText>) -> Self {
        let (arguments, grants) = (arguments.into(), Arc::new(Grants::none()));
        Self { tool, arguments, grants, effects: None, state: None }
    }

    /// Grants the needs of the call.
    #[must_use]
    pub fn granting(mut self, grants: Grants) -> Self {
        self.grants = Arc::new(grants);
        self
    }

    /// Sets the application's state, for a tool that takes one (`State<T>`), as `AgentBuilder::state` does.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use backstop_testkit::contract::{ToolSample, tool};
    /// use backstop_tool::{State, ToolError};
    /// use serde_json::json;
    ///
    /// /// Say how many of an article are in stock.
    /// #[backstop_tool::tool(idempotent)]
    /// async fn in_stock(stock: State<Vec<String>>, article: String) -> Result<usize, ToolError> {
    ///     Ok(stock.iter().filter(|item| **item == article).count())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let suite = tool(async || {
    ///     let sample = ToolSample::new(Arc::new(in_stock), json!({ "article": "rope" }));
    ///     sample.state(vec!["rope".to_owned()])
    /// });
    /// suite.check().await;
    /// # }
    /// ```
    #[must_use]
    pub fn state(mut self, state: impl Any + Send + Sync) -> Self {
        self.state = Some(Arc::new(state));
        self
    }

    /// Sets a function that returns how often the tool has acted, such as the number of rows that it wrote. With it,
    /// the suite also notices a probe that acts, and a call that acts after it was dropped.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// use backstop_testkit::contract::{ToolSample, tool};
    /// use backstop_tool::{FnTool, ToolError};
    /// use serde_json::json;
    ///
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Nothing {}
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let suite = tool(async || {
    ///     let sent = Arc::new(AtomicU64::new(0));
    ///     let counter = Arc::clone(&sent);
    ///     let send = FnTool::new("send", "Sends it.", move |_: Nothing| {
    ///         counter.fetch_add(1, Ordering::Relaxed);
    ///         async { Ok::<_, ToolError>("sent") }
    ///     });
    ///     let sample = ToolSample::new(Arc::new(send), json!({}));
    ///     sample.counting_effects(move || sent.load(Ordering::Relaxed))
    /// });
    /// suite.check().await;
    /// # }
    /// ```
    #[must_use]
    pub fn counting_effects(mut self, effects: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.effects = Some(Arc::new(effects));
        self
    }

    fn effects(&self) -> Option<u64> {
        self.effects.as_ref().map(|effects| effects())
    }

    fn context(&self, call: &str, granted: Arc<[String]>) -> ToolContext {
        let far = Timestamp::from_millis(i64::MAX / 2);
        let mut context = ToolContext::new("run_1".into(), "s".into(), call.into(), far);
        context.granted = granted;
        context.app_state.clone_from(&self.state);
        context
    }

    /// Calls the tool with arguments that were not checked.
    async fn call_unchecked(&self, arguments: JsonText) -> Result<JsonText, ToolError> {
        let arguments = Arguments::new(arguments);
        let granted = self.tool.needs(&arguments)?.into();
        self.tool.call(&arguments, &self.context("c1", granted)).await
    }

    async fn probe(&self, call: &str) -> Result<Probe, ToolError> {
        let admitted = self.admitted();
        let context = self.context(call, Arc::clone(admitted.needs()));
        admitted.tool().probe(&admitted.arguments, &context).await
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
        let context = self.context(call, Arc::clone(admitted.needs()));
        let called = admitted.tool().call(&admitted.arguments, &context).await;
        let output = called.unwrap_or_else(|error| panic!("the sample fails: {error:?}"));
        let fits = admitted.check_output(&output);
        assert!(fits.is_ok(), "the output is not what the tool declares: {fits:?}");
    }
}

/// Checks tools against the contract of [`Tool`]: it can be registered, has the same spec at every call, and keeps to
/// its spec. `make` makes a tool and a harmless call for each trial.
///
/// The suite turns on no feature of other crates: without the feature `json-schema` it refuses the same tools as an
/// agent does, those that do not [check their arguments](Tool::checks_arguments) themselves or declare the schema of
/// their output.
///
/// Specification: T1, T10, T13, T16, Y1.
pub fn tool(make: impl AsyncFn() -> ToolSample + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            answers_as_it_declares,
            answers_calls_at_once,
            can_be_registered,
            checks_arguments_if_it_declares_so,
            is_described,
            leaves_no_work_when_dropped,
            names_what_is_denied,
            needs_the_same_for_the_same_call,
            probes_without_acting,
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

/// Nothing else checks the arguments of such a tool without the feature `json-schema`.
async fn checks_arguments_if_it_declares_so(sample: ToolSample) {
    if !sample.tool.checks_arguments() {
        return;
    }
    let schema = sample.tool.spec().schema.value();
    for misfit in misfits(&schema, &sample.arguments.value()) {
        let text = misfit.to_string();
        let answer = sample.call_unchecked(misfit.into()).await;
        let kind = answer.as_ref().map_err(|error| error.kind());
        let is_refused = matches!(kind, Err(ToolError::InvalidInput(_)));
        assert!(is_refused, "{text} does not fit the schema, and the tool answers {answer:?}");
    }
}

/// The future of a call is the call: the run may have ended when it is dropped.
async fn leaves_no_work_when_dropped(sample: ToolSample) {
    sample.call("c1").await;
    assert_leaves_no_task(|| sample.call("c2")).await;
    let after = sample.effects();
    let_others_run().await;
    assert_eq!(sample.effects(), after, "a dropped call acts no more");
}

/// A probe decides whether a call of unknown outcome runs again.
async fn probes_without_acting(sample: ToolSample) {
    if !sample.tool.spec().probe {
        return;
    }
    let before = sample.effects();
    let probed = sample.probe("c1").await;
    assert!(!matches!(probed, Ok(Probe::Happened(_))), "no such call was made: {probed:?}");
    assert_eq!(sample.effects(), before, "a probe does not act");
    sample.call("c2").await;
    let before = sample.effects();
    let probed = sample.probe("c2").await;
    assert!(!matches!(probed, Ok(Probe::DidNot)), "the call happened: {probed:?}");
    assert_eq!(sample.effects(), before, "a probe does not act");
}
