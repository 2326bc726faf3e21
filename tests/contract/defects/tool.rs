//! Tools that break one promise each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use backstop::{Grants, Tool, ToolError};
use backstop_testkit::contract::{Suite, ToolSample};
use backstop_tool::{Arguments, ToolContext};
use layer0::{JsonText, ToolSpec};
use serde_json::json;

super::defects! {
    ChangesItsMind => says_the_same_of_itself_at_every_call,
    CountsItsCalls => says_the_same_of_itself_at_every_call,
    DeniesWithoutAWord => names_what_is_denied,
    Fails => answers_as_it_declares,
    HasNoDescription => is_described,
    HasNoName => can_be_registered,
    JamsWhenDropped => survives_a_dropped_call,
    NeedsMoreEachTime => needs_the_same_for_the_same_call,
    OneCallAtATime => answers_calls_at_once,
    OutputIsAnother => answers_as_it_declares,
    SchemaIsNoObject => can_be_registered,
    WantsOtherArguments => answers_as_it_declares,
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

fn suite(defect: Option<Defect>) -> Suite {
    backstop_testkit::contract::tool(async move || {
        let tool = Arc::new(Looks::new(defect));
        let grants = Grants::parse(["fs:read:/data/**"]).unwrap();
        ToolSample::new(tool, json!({ "path": "/data/a" })).granting(grants)
    })
}

/// Looks at a file, as far as its caller can tell.
struct Looks {
    defect: Option<Defect>,
    spec: ToolSpec,
    another: ToolSpec,
    calls: AtomicU32,
    is_busy: AtomicBool,
}

impl Looks {
    fn new(defect: Option<Defect>) -> Self {
        let kind = if defect == Some(D::SchemaIsNoObject) { "string" } else { "object" };
        let field = if defect == Some(D::WantsOtherArguments) { "file" } else { "path" };
        let schema = json!({ "type": kind, "required": [field] });
        let name = if defect == Some(D::HasNoName) { "" } else { "looks" };
        let description = if defect == Some(D::HasNoDescription) { " " } else { "Looks." };
        let another = ToolSpec::new(name, "Looks again.", schema.clone());
        let spec = ToolSpec::new(name, description, schema);
        let spec = spec.output_schema(json!({ "type": "string" }));
        let (calls, is_busy) = (AtomicU32::new(0), AtomicBool::new(false));
        Self { defect, spec, another, calls, is_busy }
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

    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
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
