//! `#[tool]` and the toolset, as a user meets them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use async_trait::async_trait;
use layer0::{Timestamp, ToolSpec};
use serde_json::{Value, json};
use tool::{
    Arguments, Grants, JsonText, RegistrationError, Tool, ToolContext, ToolError, Toolset, tool,
};

/// Search the web.
///
/// Returns the best hits first.
#[tool(
    name = "web.search",
    idempotent,
    exploratory,
    timeout = "5s",
    capabilities("network:outbound")
)]
async fn search(
    /// What to look for.
    query: String,
    /// How many hits, at most.
    limit: Option<u32>,
    context: &ToolContext,
) -> Result<Value, ToolError> {
    Ok(json!({"query": query, "limit": limit, "key": context.idempotency_key}))
}

/// Fails with an error of its own type.
#[tool]
async fn broken() -> Result<(), std::num::ParseIntError> {
    "x".parse::<i32>().map(|_| ())
}

fn context() -> ToolContext {
    ToolContext::new("run_1".into(), "s-1".into(), "c1".into(), Timestamp::default())
}

fn network() -> Grants {
    Grants::parse(["network:outbound"]).unwrap()
}

/// Spec: T1, T11
#[tokio::test]
async fn a_function_becomes_a_tool() {
    let spec = search.spec();
    assert_eq!(&*spec.name, "web.search");
    assert_eq!(&*spec.description, "Search the web.\n\nReturns the best hits first.");
    assert!(spec.idempotent && spec.exploratory && !spec.approval);
    assert_eq!(spec.timeout, Some(std::time::Duration::from_secs(5)));
    assert_eq!(
        spec.schema.read::<Value>().unwrap(),
        json!({
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for."},
                "limit": {
                    "type": ["integer", "null"], "format": "uint32", "minimum": 0,
                    "description": "How many hits, at most.",
                },
            },
            "required": ["query"],
            "additionalProperties": false,
        })
    );
    let tools = Toolset::new().with(search).unwrap();
    let call = tools.admit("web.search", json!({"query": "rust"}), &network()).unwrap();
    let output = call.tool().call(&call.arguments, &context()).await.unwrap();
    assert_eq!(output, json!({"query": "rust", "limit": null, "key": "run_1/c1"}));
}

/// Spec: T11
#[tokio::test]
async fn typed_errors_convert() {
    let error = broken.call(&json!({}).into(), &context()).await.unwrap_err();
    assert!(matches!(&error, ToolError::ExecutionFailed(text) if text.contains("invalid digit")));
}

/// Spec: T2, T11
#[tokio::test]
async fn typed_arguments_take_numbers_without_a_fraction() {
    async fn limit_of(written: &str) -> Result<Value, ToolError> {
        let tools = Toolset::new().with(search).unwrap();
        let arguments = format!(r#"{{"query": "5.0", "limit": {written}}}"#);
        let arguments = JsonText::parse(&arguments).unwrap();
        let call = tools.admit("web.search", arguments, &network())?;
        let output = call.tool().call(&call.arguments, &context()).await?.value();
        assert_eq!(output["query"], "5.0");
        Ok(output["limit"].clone())
    }
    for (written, limit) in [
        ("5.0", 5),
        ("5.00e0", 5),
        ("1e3", 1_000),
        ("-0.0", 0),
        ("4294967295.0", u32::MAX),
        ("42949672950e-1", u32::MAX),
    ] {
        assert_eq!(limit_of(written).await.unwrap(), json!(limit), "{written}");
    }
    for written in ["5.5", "5.0000000000000001", "-1.0", "4294967296.0", "1e30", "\"5\"", "[5.0]"] {
        let error = limit_of(written).await.unwrap_err();
        assert!(matches!(error, ToolError::InvalidInput(_)), "{written}: {error}");
    }
}

/// Spec: T2, T3, Y1
#[test]
fn a_call_is_admitted_only_when_everything_fits() {
    let tools = Toolset::new().with(search).unwrap();
    let refuse = |name: &str, arguments: Value, grants: &Grants| {
        tools.admit(name, arguments, grants).err().unwrap().to_string()
    };
    assert_eq!(refuse("nope", json!({}), &network()), "tool `nope` not found");
    assert_eq!(
        refuse("web.search", json!({"query": 1}), &network()),
        "invalid input: query must be a string"
    );
    assert_eq!(
        refuse("web.search", json!({"query": "x"}), &Grants::none()),
        "tool `web.search` requires `network:outbound`"
    );
}

/// Spec: P7
#[test]
fn arguments_that_are_no_json_are_never_run() {
    let tools = Toolset::new().with(search).unwrap();
    let error = tools.admit("web.search", json!("{\"query\": \"ru"), &network()).err().unwrap();
    assert!(
        matches!(&error, ToolError::InvalidInput(why) if why.contains("do not parse")),
        "{error}"
    );
}

struct Specified(ToolSpec);

#[async_trait]
impl Tool for Specified {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        Ok(JsonText::default())
    }
}

fn named(name: &str) -> ToolSpec {
    ToolSpec::new(name, "x", json!({"type": "object"}))
}

/// Spec: T15
#[test]
fn tool_names_are_checked_and_may_not_clash() {
    let add = |names: &[&str]| {
        let mut tools = Toolset::new();
        names.iter().try_for_each(|name| tools.add(Arc::new(Specified(named(name)))))
    };
    let text = |names: &[&str]| add(names).unwrap_err().to_string();
    add(&["web.search", "web-search", "s\u{fc}che x", &"x".repeat(64)]).unwrap();
    assert_eq!(
        text(&["web.search", "sql", "web_search"]),
        "tool `web_search` and tool `web.search` are both `web_search` to a provider"
    );
    let near = "x".repeat(63);
    let (one, other) = (format!("{near}."), format!("{near} a").replace(' ', "_"));
    assert!(text(&[&one, &other]).contains("has more than 64 characters"));
    assert!(text(&[""]).ends_with("is empty"));
    assert!(text(&["s\u{fc}che", "s\u{e4}che"]).contains("are both `s_che`"));
}

/// Spec: T1
#[test]
fn a_tool_that_cannot_work_is_refused() {
    let add = |spec: ToolSpec| Toolset::new().with(Specified(spec)).err().unwrap().to_string();
    let zero = named("t").timeout(std::time::Duration::ZERO);
    assert_eq!(add(zero), "the timeout of tool `t` must not be zero");
    assert!(add(named("t").capability("fs:raed")).contains("did you mean `fs:read`?"));
    for schema in [json!({}), json!(true), json!({"type": "string"})] {
        let error = add(ToolSpec::new("t", "x", schema));
        assert!(error.contains("its `type` must be `object`"), "{error}");
    }
}

/// Spec: E12
#[test]
fn two_tools_of_one_name_are_refused() {
    let error = Toolset::new().with(search).unwrap().with(search).unwrap_err();
    assert_eq!(error, RegistrationError::Duplicate("web.search".into()));
}

/// Spec: E3, E6, E9
#[test]
fn every_variant_states_its_facts() {
    use layer0::failure::{Failure, Retry};
    use std::time::Duration;
    let errors = [
        ToolError::Cancelled,
        ToolError::Caused("no connection".into()),
        ToolError::ExecutionFailed("boom".into()),
        ToolError::ExecutionFailed("boom".into()).with_code("SQL_ERROR"),
        ToolError::ExecutionFailed("busy".into()).with_retry(Retry::After(Duration::from_secs(2))),
        ToolError::Interrupted,
        ToolError::InvalidInput("x is required".into()),
        ToolError::InvalidOutput("output must be an object".into()),
        ToolError::NotFound("x".into()),
        ToolError::Other("odd".into()),
        ToolError::Panicked("index".into()),
        ToolError::permission_denied("x", "process:spawn"),
        ToolError::timeout(Duration::from_secs(30)),
    ];
    let rows: Vec<String> = errors
        .iter()
        .map(|error| {
            let (retry, effect) = (format!("{:?}", error.retry()), format!("{:?}", error.effect()));
            assert!(layer0::code::find(error.code()).is_some());
            format!(
                "{:<24} {retry:<10} {effect:<8} {}",
                error.code(),
                layer0::failure::Chain(error)
            )
        })
        .collect();
    insta::assert_snapshot!(rows.join("\n"));
    assert!(size_of::<ToolError>() <= 64, "{}", size_of::<ToolError>());
}

/// A tool that is never called.
struct Unused(ToolSpec);

#[async_trait]
impl Tool for Unused {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        Err(ToolError::Cancelled)
    }
}

/// Spec: E12. A schema is refused for what it is, before anything is made of it.
#[test]
fn deeply_nested_schema_is_refused_by_name() {
    #[track_caller]
    fn added(levels: usize) -> Result<Toolset, RegistrationError> {
        let schema = (0..levels / 2).fold(
            json!({"type": "object"}),
            |inner, _| json!({"type": "object", "properties": {"x": inner}}),
        );
        Toolset::new().with(Unused(ToolSpec::new("deep", "Deep.", schema)))
    }
    assert!(added(90).is_ok());
    for levels in [104, 124, 400] {
        let error = added(levels).unwrap_err().to_string();
        assert!(error.starts_with("the schema of tool `deep` is not valid: "), "{error}");
        assert!(error.contains("deep") && !error.contains("null"), "{error}");
    }
}
