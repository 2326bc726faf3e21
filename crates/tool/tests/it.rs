//! `#[tool]` and the toolset, as a user meets them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_tool::{
    Arguments, FnTool, Grants, JsonText, Tool, ToolContext, ToolError, ToolRegistrationError,
    Toolset, tool,
};
use layer0::failure::{Failure, Retry};
use layer0::{Approvers, Timestamp, ToolSpec};
use serde_json::{Value, json};

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

/// Pay an order back.
#[tool(approval(expires_after_ms = 3_600_000, approvers = ["ops", "lead"]), idempotent)]
async fn refund(order: u32) -> Result<u32, std::fmt::Error> {
    Ok(order)
}

/// Spec: A4, T11
#[test]
fn a_function_says_who_approves_it_until_when() {
    let spec = refund.spec();
    assert!(spec.approval && spec.idempotent);
    assert_eq!(spec.expires_after, Some(Duration::from_secs(3_600)));
    assert_eq!(spec.approvers.names().collect::<Vec<_>>(), ["ops", "lead"]);
}

/// Spec: A4
#[test]
fn approvals_that_cannot_be_decided_are_refused() {
    let any_person = Approvers::default;
    let nameless = || Approvers::from_iter(["ops", " "]);
    let added = |spec: ToolSpec| Toolset::new().with(Said(spec)).map(|_| ());
    let name = || "refund".into();
    let at_once = Err(ToolRegistrationError::ZeroExpiry(name()));
    let blank = Err(ToolRegistrationError::BlankApprover(name()));
    assert_eq!(added(refund.spec().clone().expires_after(Duration::ZERO)), at_once);
    let for_ever = Err(ToolRegistrationError::LongExpiry(name()));
    for time in [Duration::MAX, Duration::from_millis(9_999_999_999_999_999)] {
        assert_eq!(added(refund.spec().clone().expires_after(time)), for_ever);
    }
    assert_eq!(added(refund.spec().clone().approvers([" "])), blank);
    let mut tools = Toolset::new().with(refund).unwrap();
    assert_eq!(tools.limit_approvals("refund", Some(Duration::ZERO), any_person()), at_once);
    assert_eq!(tools.limit_approvals("refund", None, nameless()), blank);
    assert_eq!(tools.specs().next(), Some(refund.spec()), "what is refused changes nothing");
    tools.limit_approvals("refund", None, ["lead"].into_iter().collect()).unwrap();
    let spec = tools.specs().next().unwrap();
    assert_eq!(
        (spec.expires_after, spec.approvers.to_string()),
        (refund.spec().expires_after, "lead".into())
    );
}

/// A tool that is only described.
struct Said(ToolSpec);

#[async_trait]
impl Tool for Said {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        Ok(JsonText::string("done"))
    }
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
    assert_eq!(spec.timeout, Some(Duration::from_secs(5)));
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
    let key = "bs_a8927eedb5536986d20737c1323bd2e9";
    assert_eq!(output, json!({"query": "rust", "limit": null, "key": key}));
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

/// Spec: T3, P7. However a schema is written, its check ends soon, and says whose schema it was.
#[test]
fn calls_that_cannot_be_checked_are_refused() {
    let branch = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}});
    let either = json!({"anyOf": [branch, branch, {"type": "integer"}]});
    let each: Vec<Value> = (0..1_000).map(|n| json!({"not": {"const": n}})).collect();
    let schema = json!({
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/a"}, "list": {"items": {"allOf": each}}},
        "$defs": {"a": either},
    });
    let tools = Toolset::new().with(Specified(ToolSpec::new("pay", "Pays.", schema))).unwrap();
    let refuse = |arguments: Value| {
        let error = tools.admit("pay", arguments, &Grants::none()).err().unwrap();
        assert_eq!((error.code(), error.retry()), ("tool.invalid_input", Retry::Never));
        error.to_string()
    };
    let tree = (0..80).fold(json!("no"), |inner, _| json!({"x": inner}));
    let located = refuse(json!({"tree": tree}));
    assert!(located.contains("arguments does not satisfy its schema"), "{located}");
    assert_eq!(
        refuse(json!({"list": vec![7_777; 10_000]})),
        "invalid input: arguments cannot be checked against the input schema of `pay`: it would take more than \
         5000000 steps"
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

/// Spec: T2
#[test]
fn optional_arguments_may_be_null() {
    let schema = json!({
        "type": "object", "properties": {"n": {"type": "integer"}, "m": {"type": "integer"}},
        "required": ["m"], "additionalProperties": false,
    });
    let tool = Specified(ToolSpec::new("count", "Counts.", schema));
    let tools = Toolset::new().with(tool).unwrap();
    let admit = |arguments| tools.admit("count", arguments, &Grants::none());
    let admitted = admit(json!({"n": null, "m": 1})).unwrap();
    assert_eq!(*admitted.arguments.value(), json!({"m": 1}));
    assert!(matches!(admit(json!({"m": null})), Err(ToolError::InvalidInput(_))));
}

/// Spec: T15
#[test]
fn tool_names_are_checked_and_may_not_clash() {
    let add = |names: &[&str]| {
        let mut tools = Toolset::new();
        names.iter().try_for_each(|name| tools.add(Arc::new(Specified(named(name)))))
    };
    let text = |names: &[&str]| layer0::failure::Chain(&add(names).unwrap_err()).to_string();
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
    let zero = named("t").timeout(Duration::ZERO);
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
    assert_eq!(error, ToolRegistrationError::Duplicate("web.search".into()));
}

/// Spec: E3, E6, E9
#[test]
fn every_variant_states_its_facts() {
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
        ToolError::Unavailable("the record has no such call".into()),
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
    assert!(size_of::<ToolError>() <= 80, "{}", size_of::<ToolError>());
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
    fn added(levels: usize) -> Result<Toolset, ToolRegistrationError> {
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

struct Shop {
    stock: i64,
}

mod elsewhere {
    pub(crate) use backstop_tool as tools;
}

/// Take some out of stock.
#[tool(crate = elsewhere::tools)]
async fn take(shop: backstop_tool::State<Shop>, count: i64) -> Result<i64, ToolError> {
    Ok(shop.stock - count)
}

async fn called(tool: &dyn Tool, arguments: Value, state: Option<Shop>) -> Result<Value, String> {
    let mut context = context();
    context.app_state = state.map(|shop| Arc::new(shop) as _);
    let output = tool.call(&arguments.into(), &context).await;
    output.map(|output| output.value()).map_err(|error| layer0::failure::Chain(&error).to_string())
}

/// Spec: T11
#[tokio::test]
async fn functions_take_the_state_of_the_application() {
    assert_eq!(take.state_type(), Some(backstop_tool::StateType::for_type::<Shop>()));
    let schema = take.spec().schema.value();
    assert_eq!(schema["required"], json!(["count"]), "the model knows nothing of it");
    let shop = || Some(Shop { stock: 9 });
    assert_eq!(called(&take, json!({"count": 2}), shop()).await, Ok(json!(7)));
    let error = called(&take, json!({"count": 2}), None).await.unwrap_err();
    assert!(error.contains("no state of type") && error.contains("Shop"), "{error}");
}

/// Spec: T3, T11
#[tokio::test]
async fn closures_are_tools() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Order {
        /// How many.
        count: i64,
        #[serde(default)]
        items: Vec<i64>,
    }
    let stock = 9;
    let left = FnTool::new("left", "How many are left.", move |order: Order| async move {
        let taken = order.count + order.items.iter().sum::<i64>();
        if taken > stock { Err("not so many".to_owned()) } else { Ok(stock - taken) }
    });
    assert_eq!(left.spec().schema.value()["properties"]["count"]["description"], "How many.");
    assert_eq!(called(&left, json!({"count": 2, "items": [1]}), None).await, Ok(json!(6)));
    let failed = called(&left, json!({"count": 20}), None).await;
    assert_eq!(failed, Err("not so many".to_owned()));
    let named = called(&left, json!({"count": 2, "items": [1, "x"]}), None).await.unwrap_err();
    assert!(named.starts_with("invalid input: items[1]: invalid type"), "{named}");

    let who =
        FnTool::with_context("who", "Who asks.", |_: Order, context: ToolContext| async move {
            Ok::<_, ToolError>(context.session.to_string())
        });
    assert_eq!(called(&who, json!({"count": 1}), None).await, Ok(json!("s-1")));
}

/// What to reserve.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Wanted {
    article: String,
}

/// Reserve something.
#[tool]
async fn reserve(reserve: Wanted, search: Option<String>) -> Result<String, ToolError> {
    Ok(format!("{} {}", reserve.article, search.unwrap_or_default()))
}

/// Spec: T11. A parameter may have the name of its tool, or of another one.
#[tokio::test]
async fn parameters_may_be_named_like_tools() {
    let arguments = Arguments::new(json!({"reserve": {"article": "rope"}, "search": "red"}).into());
    let far = Timestamp::from_millis(i64::MAX / 2);
    let context = ToolContext::new("run_1".into(), "s".into(), "c1".into(), far);
    let answer = reserve.call(&arguments, &context).await.unwrap();
    assert_eq!(answer.value(), "rope red");
}
