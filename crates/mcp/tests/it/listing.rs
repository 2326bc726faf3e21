//! The lists of servers, and their tools.

use std::sync::Arc;

use backstop_mcp::{McpClient, McpError};
use backstop_tool::{ToolError, ToolSource};
use layer0::failure::Failure;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::server::Script;
use crate::support::{Faulty, Way, call, checks, until};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = checks![over Way::WHOLE: lists_are_bounded, lists_that_go_round_are_kept, tools_as_tasks_alone_are_left_out, unusable_tools_are_left_out, unreadable_tools_take_no_other_away, patterns_of_no_tool_are_refused, pages_are_read_in_order];
    trials.extend(checks![
        tools_with_bad_headers_are_left_out,
        changes_change_nothing,
        names_are_the_same_in_every_order
    ]);
    trials
}

fn listing(tools: &[Value]) -> Value {
    json!({ "tools": tools })
}

fn listed(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

async fn connect(way: Way, pages: Vec<Value>) -> Result<(Faulty, Arc<McpClient>), McpError> {
    let script = Script { pages, ..Script::faulty("") };
    let (faulty, server) = Faulty::new(way, script);
    server.connect().await.map(|client| (faulty, client))
}

/// Spec: Q3
async fn lists_are_bounded(way: Way) {
    let check = async |pages: Vec<Value>, why: &str| {
        let error = connect(way, pages).await.err().unwrap();
        assert_eq!(error.code(), "mcp.list_failed");
        assert!(error.to_string().ends_with(why), "{error}");
    };
    let many: Vec<Value> = (0..10_000).map(|n| listed(&format!("t{n}"))).collect();
    check(vec![listing(&many)], "there are more than 1000").await;
    let to = |cursor: usize| json!({"tools": [], "nextCursor": cursor.to_string()});
    check((1..30).map(to).collect(), "there are more than 20 pages").await;
    check(vec![json!({"tools": [], "nextCursor": "x".repeat(100_000)})], "65536 bytes").await;
    check(vec![json!({"tools": "none"})], "a page has no `tools`").await;
    let none = connect(way, vec![listing(&[])]).await.unwrap().1;
    assert!(none.tools().is_empty());
}

/// Spec: Q3
async fn lists_that_go_round_are_kept(way: Way) {
    let check = async |pages: Vec<Value>, names: &[&str], warning: &str| {
        let (_faulty, client) = connect(way, pages).await.unwrap();
        let tools = client.tools();
        let found: Vec<&str> = tools.iter().filter_map(|it| it.spec().origin.as_deref()).collect();
        assert_eq!(found, names);
        assert_eq!(client.warnings().last().map_or("", |it| &**it), warning);
    };
    let to = |cursor: &str, names: &[&str]| {
        let tools: Vec<Value> = names.iter().map(|name| listed(name)).collect();
        json!({"tools": tools, "nextCursor": cursor})
    };
    let twice = "tool `a` is listed twice; the first is taken";
    let back = "a page of its tools leads back to itself; no further one is read";
    let nothing_new = "a page of its tools brings nothing new; no further one is read";
    check(vec![listing(&[listed("a"), listed("a")])], &["a"], twice).await;
    check(vec![to("1", &["a"]), to("2", &["a", "b"]), listing(&[])], &["a", "b"], twice).await;
    check(vec![to("1", &["a"]), to("1", &["b"])], &["a", "b"], back).await;
    check(vec![to("1", &["a"]), to("0", &["b"])], &["a", "b"], nothing_new).await;
    check(vec![to("1", &[]), to("1", &[])], &[], back).await;
    let no_text = "the cursor of a page of its tools is no text; no further one is read";
    let next = |cursor: Value, tools: Value| json!({"tools": tools, "nextCursor": cursor});
    let (null, a) = (Value::Null, || json!([listed("a")]));
    check(vec![next(json!(1), a()), listing(&[listed("b")])], &["a", "b"], "").await;
    check(vec![next(null.clone(), a()), listing(&[listed("b")])], &["a"], "").await;
    check(vec![next(json!({}), a()), listing(&[listed("b")])], &["a"], no_text).await;
    check(vec![next(json!("1"), a()), json!({"tools": null})], &["a"], "").await;
    check(vec![next(json!("1"), null), listing(&[listed("b")])], &["b"], "").await;
    check(vec![next(json!("1"), a()), json!({})], &["a"], "").await;
    // An empty cursor is an ordinary cursor.
    check(vec![to("", &["a"]), listing(&[listed("b")])], &["a", "b"], "").await;
}

/// Spec: Q4
async fn tools_as_tasks_alone_are_left_out(way: Way) {
    let as_task = |name: &str, support: &str| {
        let mut tool = listed(name);
        tool["execution"] = json!({"taskSupport": support});
        tool
    };
    let tools = [as_task("a", "required"), as_task("b", "optional"), as_task("c", "forbidden")];
    let (_faulty, client) = connect(way, vec![listing(&tools)]).await.unwrap();
    assert_eq!(client.tools().len(), 2);
    let left_out = &client.left_out()[0];
    assert_eq!(left_out.origin, "a");
    assert_eq!(left_out.why, "it can only be called as a task, which is not supported");
}

/// Spec: Q4
async fn unusable_tools_are_left_out(way: Way) {
    let mut unusable = listed("unusable");
    unusable["inputSchema"] = json!({"type": "object", "properties": {"n": {"type": "nonsense"}}});
    let mut draft_04 = listed("draft_04");
    draft_04["inputSchema"]["properties"] =
        json!({"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}});
    let mut of_text = listed("of_text");
    of_text["inputSchema"] = json!({"type": "string"});
    let mut no_schema = listed("no_schema");
    no_schema["inputSchema"] = json!("object");
    let mut large = listed("large");
    large["inputSchema"]["description"] = "x".repeat(5 * 1024 * 1024).into();
    let mut bad_output = listed("bad_output");
    bad_output["outputSchema"] = json!({"type": 7});
    let mut untyped = listed("untyped");
    untyped["inputSchema"] = json!({});
    let unnamed = json!({"inputSchema": {"type": "object"}});
    let tools = [
        listed("good"),
        unusable,
        draft_04,
        of_text,
        no_schema,
        large,
        bad_output,
        unnamed,
        listed("\u{8aad}\u{3080}"),
        untyped,
    ];
    let (_faulty, client) = connect(way, vec![listing(&tools)]).await.unwrap();
    let kept: Vec<String> =
        client.tools().iter().map(|tool| tool.spec().name.to_string()).collect();
    assert_eq!(kept, ["faulty__good", "faulty_____818417a1", "faulty__untyped"]);
    let why = |origin: &str| {
        let left_out = client.left_out().iter().find(|tool| tool.origin == origin);
        left_out.unwrap_or_else(|| panic!("`{origin}` was not left out")).why.clone()
    };
    assert!(why("unusable").starts_with("its schema is not valid: "), "{}", why("unusable"));
    assert!(why("draft_04").starts_with("its schema is not valid: "), "{}", why("draft_04"));
    assert_eq!(why("of_text"), "its schema is of type `\"string\"`, not `object`");
    assert_eq!(why("no_schema"), "its schema is no object");
    assert_eq!(why("large"), "what is said of it has more than 1048576 bytes");
    assert!(why("bad_output").starts_with("its output schema is not valid: "));
    assert_eq!(why(""), "it has no name");
    assert_eq!(
        call(&client, "\u{8aad}\u{3080}").await.unwrap().as_string().unwrap(),
        "\u{8aad}\u{3080} is done"
    );
}

/// Spec: Q4
async fn unreadable_tools_take_no_other_away(way: Way) {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let tool = |name: &str, more: &str| {
        format!(r#"{{"name":"{name}","inputSchema":{{"type":"object","default":{more}}}}}"#)
    };
    let tools = [
        tool("deep", &deep(200)),
        tool("deepest", &deep(100_000)),
        tool("beyond", &deep(110)),
        tool("endless", "1e999"),
        r#"{"name":7}"#.to_owned(),
        "7".to_owned(),
        tool("good", &deep(10)),
        // A lone surrogate is no character, and no reason to omit a tool.
        tool("half", r#""\ud800""#),
    ];
    let listed = format!(r#"{{"tools":[{}],"_meta":{}}}"#, tools.join(","), deep(200));
    let script = Script { listed, ..Script::faulty("") };
    let (_faulty, server) = Faulty::new(way, script);
    let client = server.connect().await.unwrap();
    let kept: Vec<String> =
        client.tools().iter().map(|tool| tool.spec().name.to_string()).collect();
    assert_eq!(kept, ["faulty__good", "faulty__half"]);
    let left_out: Vec<(&str, &str)> =
        client.left_out().iter().map(|tool| (&*tool.origin, &*tool.why)).collect();
    for (at, (origin, why)) in [
        ("deep", "what is said of it cannot be read: it is nested deeper than 100 levels"),
        ("deepest", "what is said of it cannot be read: it is nested deeper than 100 levels"),
        ("beyond", "what is said of it cannot be read: it is nested deeper than 100 levels"),
        ("endless", "what is said of it cannot be read: number out of range"),
        ("", "it has no name"),
        ("", "it has no name"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(left_out[at].0, origin);
        assert!(left_out[at].1.starts_with(why), "{:?}", left_out[at]);
    }
    assert_eq!(call(&client, "good").await.unwrap().as_string().unwrap(), "good is done");
}

/// Spec: Q4. The transport makes headers of arguments where a schema asks for it.
async fn tools_with_bad_headers_are_left_out() {
    let mut bad = listed("bad");
    bad["inputSchema"]["properties"] = json!({"n": {"type": "string", "x-mcp-header": "a b"}});
    let pages = vec![listing(&[bad, listed("good")])];
    let script = Script { pages, protocol: "2026-07-28".to_owned(), ..Script::default() };
    let (_faulty, server) = Faulty::new(Way::ALL[2], script);
    let client = server.connect().await.unwrap();
    let left_out = &client.left_out()[0];
    assert_eq!((client.tools().len(), &*left_out.origin), (1, "bad"));
    assert_eq!(left_out.why, "the headers that its schema asks for cannot be sent");
}

/// Spec: Q7. A typing mistake takes no approval away.
async fn patterns_of_no_tool_are_refused(way: Way) {
    let describe = || Faulty::new(way, Script::faulty(""));
    let names = "`act`, `look`, `ok`, `repeat`, `typed`";
    let (_one, server) = describe();
    let error = server.approval(["act", "lok*"]).connect().await.unwrap_err();
    let why = format!("pattern `lok*` of `approval` matches none of its tools: {names}");
    assert_eq!(error.to_string(), format!("MCP server `faulty` cannot be used: {why}"));
    assert_eq!(error.code(), "mcp.misconfigured");
    let (_two, server) = describe();
    let error = server.only(["Act"]).connect().await.unwrap_err();
    let why = format!("pattern `Act` of `only` matches none of its tools: {names}");
    assert!(error.to_string().ends_with(&why), "{error}");
    // A pattern that would only loosen a rule has no effect.
    let (_three, server) = describe();
    let server = server.idempotent(["reed_*"]).read_only(["lok"]);
    let client = server.only(["look"]).approval(["act"]).connect().await.unwrap();
    assert_eq!(client.tools().len(), 1);
    let script = Script { pages: vec![listing(&[])], ..Script::faulty("") };
    let (_four, server) = Faulty::new(way, script);
    server.approval(["act"]).connect().await.unwrap();
}

/// Spec: Q3
async fn pages_are_read_in_order(way: Way) {
    let page = |name: &str, next: Option<usize>| json!({"tools": [listed(name)], "nextCursor": next.map(|next| next.to_string())});
    let pages = vec![page("one", Some(1)), page("two", Some(2)), page("three", None)];
    let (_faulty, client) = connect(way, pages).await.unwrap();
    let tools = client.tools();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.spec().name).collect();
    assert_eq!(names, ["faulty__one", "faulty__two", "faulty__three"]);
}

/// Spec: Q6
async fn changes_change_nothing() {
    let mut other = listed("look");
    other["description"] = "Looks elsewhere.".into();
    other["inputSchema"] = json!("broken");
    let later = Some(listing(&[other, listed("ok"), listed("new")]));
    let pages = vec![listing(&[listed("act"), listed("look"), listed("ok")])];
    let (_faulty, server) = Faulty::new(Way::ALL[0], Script { pages, later, ..Script::faulty("") });
    let client = server.connect().await.unwrap();
    assert!(client.listing().changes(&client.current()).is_empty());
    call(&client, "act").await.unwrap();
    until(|| !client.listing().changes(&client.current()).is_empty()).await;
    let changes = client.listing().changes(&client.current());
    assert_eq!(changes.added, ["faulty__new"]);
    assert_eq!(changes.removed, ["faulty__act", "faulty__look"]);
    assert_eq!(client.tools().len(), 3);
    let gone = call(&client, "act").await.unwrap_err();
    assert!(matches!(gone, ToolError::NotFound(name) if name == "faulty__act"));
    // A tool whose schema changed, even to an unusable one, can still be called.
    assert!(call(&client, "look").await.is_ok());
}

/// Spec: Q1
async fn names_are_the_same_in_every_order() {
    let names = ["a b", "a.b", "a_b", &"x".repeat(90)];
    let tools: Vec<Value> = names.iter().map(|name| listed(name)).collect();
    let back: Vec<Value> = tools.iter().rev().cloned().collect();
    let (_one, there) = connect(Way::ALL[0], vec![listing(&tools)]).await.unwrap();
    let (_two, back) = connect(Way::ALL[2], vec![listing(&back)]).await.unwrap();
    assert_eq!(there.listing().tools, back.listing().tools);
    assert_eq!(there.listing().tools.len(), 4);
}
