//! Tools that break one promise each.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop::{Grants, MemoryErrorStore, Tool, ToolError};
use backstop_error_store::{ErrorDetail, ErrorStore, NewError, Origin};
use backstop_redact::Redactor;
use backstop_testkit::contract::{Suite, ToolSample};
use backstop_tool::{Arguments, Probe, ToolContext};
use layer0::code::{self, Code};
use layer0::{JsonText, Timestamp, ToolSpec};
use serde_json::json;

super::defects! {
    AcceptsAnyArguments => checks_arguments_if_it_declares_so,
    ActsWhenProbed => probes_without_acting,
    ChangesItsMind => says_the_same_of_itself_at_every_call,
    CountsItsCalls => says_the_same_of_itself_at_every_call,
    DeniesWithoutAWord => names_what_is_denied,
    Fails => answers_as_it_declares,
    HasNoDescription => is_described,
    HasNoName => can_be_registered,
    JamsWhenDropped => survives_a_dropped_call,
    NeedsMoreEachTime => needs_the_same_for_the_same_call,
    OneCallAtATime => answers_calls_at_once,
    NeverHappened => probes_without_acting,
    OutputIsAnother => answers_as_it_declares,
    SchemaIsNoObject => can_be_registered,
    WantsOtherArguments => answers_as_it_declares,
    WasAlwaysCalled => probes_without_acting,
    WorksOnWhenDropped => leaves_no_work_when_dropped,
}

use Defect as D;

/// Spec: T1, T13
#[test]
fn every_defect_of_a_tool_is_noticed() {
    super::check(DEFECTS, |defect| suite(Some(defect)));
}

/// Spec: T1, T13
#[tokio::test]
async fn a_sound_tool_keeps_the_contract() {
    suite(None).check().await;
}

/// Add two numbers.
#[backstop::tool]
async fn add(x: i64, y: Option<i64>) -> Result<i64, ToolError> {
    Ok(x + y.unwrap_or_default())
}

/// Spec: T1, T13
#[tokio::test]
async fn a_typed_tool_keeps_the_contract() {
    let sample = async || ToolSample::new(Arc::new(add), json!({ "x": 1, "y": 2 }));
    backstop_testkit::contract::tool(sample).check().await;
}

/// Spec: T1, S8
#[tokio::test]
async fn details_of_errors_keep_the_contract() {
    let suite = backstop_testkit::contract::tool(async || {
        let store = Arc::new(MemoryErrorStore::new());
        let origin = Origin::new(Timestamp::default(), "s", "run_1", "c1", "sql");
        let reason = Code::new(code::TOOL_EXECUTION_FAILED);
        let error = NewError::new(origin, reason, None, "boom", &Redactor::new());
        let id = store.store(error).await.unwrap().id;
        let arguments = json!({ "error_id": id, "offset": 0 });
        ToolSample::new(Arc::new(ErrorDetail::new(store)), arguments)
    });
    suite.check().await;
}

fn suite(defect: Option<Defect>) -> Suite {
    backstop_testkit::contract::tool(async move || {
        let tool = Arc::new(Looks::new(defect));
        let grants = Grants::parse(["fs:read:/data/**"]).unwrap();
        let effects = Arc::clone(&tool.effects);
        let sample = ToolSample::new(tool, json!({ "path": "/data/a" })).granting(grants);
        sample.counting_effects(move || effects.load(Ordering::Relaxed))
    })
}

/// Looks at a file, as far as its caller can tell.
struct Looks {
    defect: Option<Defect>,
    spec: ToolSpec,
    another: ToolSpec,
    calls: AtomicU32,
    is_busy: AtomicBool,
    /// The idempotency keys of the calls.
    keys: Mutex<BTreeSet<String>>,
    effects: Arc<AtomicU64>,
}

impl Looks {
    fn new(defect: Option<Defect>) -> Self {
        let kind = if defect == Some(D::SchemaIsNoObject) { "string" } else { "object" };
        let field = if defect == Some(D::WantsOtherArguments) { "file" } else { "path" };
        let text = json!({ "type": "string" });
        let schema = json!({ "type": kind, "required": [field], "properties": { field: text } });
        let name = if defect == Some(D::HasNoName) { "" } else { "looks" };
        let description = if defect == Some(D::HasNoDescription) { " " } else { "Looks." };
        let another = ToolSpec::new(name, "Looks again.", schema.clone());
        let spec = ToolSpec::new(name, description, schema);
        let spec = spec.output_schema(json!({ "type": "string" })).probe();
        let (calls, is_busy) = (AtomicU32::new(0), AtomicBool::new(false));
        let (keys, effects) = (Mutex::default(), Arc::default());
        Self { defect, spec, another, calls, is_busy, keys, effects }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn has_run(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0
    }
}

#[async_trait]
impl Tool for Looks {
    fn spec(&self) -> &ToolSpec {
        if self.is(D::ChangesItsMind) && self.has_run() { &self.another } else { &self.spec }
    }

    fn checks_arguments(&self) -> bool {
        true
    }

    fn stores_errors(&self) -> bool {
        !(self.is(D::CountsItsCalls) && self.has_run())
    }

    fn needs(&self, _: &Arguments) -> Result<Vec<String>, ToolError> {
        let mut needs = vec!["fs:read:/data/a".to_owned()];
        if self.is(D::NeedsMoreEachTime) && self.has_run() {
            needs.push("fs:read:/data/b".to_owned());
        }
        Ok(needs)
    }

    fn describe_denied_need(&self, _: &Arguments, need: &str) -> String {
        if self.is(D::DeniesWithoutAWord) { String::new() } else { need.to_owned() }
    }

    async fn probe(&self, _: &Arguments, context: &ToolContext) -> Result<Probe, ToolError> {
        if self.is(D::ActsWhenProbed) {
            self.effects.fetch_add(1, Ordering::Relaxed);
        }
        match self.keys.lock().unwrap().contains(&context.idempotency_key) {
            _ if self.is(D::WasAlwaysCalled) => Ok(Probe::Happened(None)),
            true if !self.is(D::NeverHappened) => Ok(Probe::Happened(None)),
            _ => Ok(Probe::DidNot),
        }
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        if !self.is(D::AcceptsAnyArguments) {
            arguments.required_text("path")?;
        }
        if self.is(D::WorksOnWhenDropped) {
            tokio::spawn(std::future::pending::<()>());
        }
        self.keys.lock().unwrap().insert(context.idempotency_key.clone());
        self.effects.fetch_add(1, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        let was_busy = self.is_busy.swap(true, Ordering::Relaxed);
        if was_busy && matches!(self.defect, Some(D::OneCallAtATime | D::JamsWhenDropped)) {
            return Err(ToolError::ExecutionFailed("busy".into()));
        }
        tokio::task::yield_now().await;
        self.is_busy.store(false, Ordering::Relaxed);
        match self.defect {
            Some(D::Fails) => Err(ToolError::ExecutionFailed("no".into())),
            Some(D::OutputIsAnother) => Ok(json!(42).into()),
            _ => Ok(json!("there").into()),
        }
    }
}
