//! Settings of model requests besides the input.

use backstop_provider::ScriptedAnswer;
use backstop_testkit::{Loopback, Reply, ScriptedEndpoint};
use serde_json::json;

use crate::bench::Bench;

fn endpoint() -> ScriptedEndpoint {
    let says = |text: &str| ScriptedAnswer::saying(text);
    ScriptedEndpoint::anthropic(vec![says("A cat."), says("Sure.")])
}

fn agent(url: &str) -> String {
    format!("[model]\nprovider = \"anthropic\"\nmodel = \"m\"\nbase_url = \"{url}\"\n")
}

/// Spec: P1, D2
#[test]
fn image_is_sent_recorded_and_remembered() {
    let server = endpoint();
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.write("agent.toml", &agent(&server.base_url()));
    bench.write("cat.gif", "GIF89a and so on");
    let command = ["run", "agent.toml", "--input", "What is it?", "--image", "cat.gif"];
    let ran = bench.run(&[&command[..], &["--session", "s", "--json"]].concat()).ok().json();
    let run = ran[0]["run"].as_str().unwrap();
    let trace = bench.run(&["trace", run]).ok().out;
    assert!(trace.contains("What is it? (with 1 image)"), "{trace}");
    bench.run(&["replay", run]).ok();
    bench.run(&["run", "agent.toml", "--input", "Sure?", "--session", "s"]).ok();
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        let source = &request.body["messages"][0]["content"][0]["source"];
        assert_eq!(source["media_type"], "image/gif");
        assert_eq!(source["data"], "R0lGODlhIGFuZCBzbyBvbg==");
    }
}

#[test]
fn invalid_image_is_refused_before_the_model_call() {
    let server = endpoint();
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.write("agent.toml", &agent(&server.base_url()));
    bench.write("notes.txt", "no image");
    let ask = |image| bench.run(&["run", "agent.toml", "--input", "?", "--image", image]);
    ask("notes.txt").fails(2, "notes.txt: not a PNG, JPEG, GIF or WebP image");
    ask("absent.png").fails(2, "absent.png");
    assert!(server.requests().is_empty());
    assert!(!bench.path().join("x.db").exists());
}

/// Request fields without a key in the agent file, such as the thinking budget.
#[test]
fn extra_body_is_sent_unchanged() {
    let server = endpoint();
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let extra = "[model.extra_body.thinking]\ntype = \"enabled\"\nbudget_tokens = 2048\n";
    bench.write("agent.toml", &format!("{}{extra}", agent(&server.base_url())));
    bench.run(&["run", "agent.toml", "--input", "?"]).ok();
    let thinking = json!({ "type": "enabled", "budget_tokens": 2048 });
    assert_eq!(server.requests()[0].body["thinking"], thinking);
    bench.agent("[[model]]\ntext = \"x\"\n", "extra_body = { top_p = 0.5 }\n");
    bench.run(&["run", "agent.toml"]).fails(2, "`extra_body` does not apply to");
}

/// Spec: P11
#[test]
fn nothing_leaves_the_machine_where_that_is_denied() {
    let bench = Bench::new()
        .with("BACKSTOP_STORE", "sqlite:x.db")
        .with("BACKSTOP_DENY_REAL_REQUESTS", "1")
        .with("ANTHROPIC_API_KEY", "sk-0123456789");
    bench.write("agent.toml", "[model]\nprovider = \"anthropic\"\nmodel = \"m\"\n");
    bench.run(&["run", "agent.toml", "--input", "?"]).fails(1, "real requests are denied");
    let server = endpoint();
    bench.write("local.toml", &agent(&server.base_url()));
    bench.run(&["run", "local.toml", "--input", "?"]).ok();
}

/// Spec: P3. What an endpoint leaves out stands in the agent file.
#[test]
fn a_compatible_endpoint_is_declared_in_the_file() {
    let body = r#"data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}"#;
    let reply = Reply::events(format!("{body}\n\n"));
    let server = Loopback::serving(move |_| reply.clone());
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let openai = format!(
        "[agent]\n[agent.retry]\nattempts = 1\n[model]\nprovider = \"openai\"\nmodel = \"m\"\n\
         max_output_tokens = 9\nbase_url = \"{}\"\n",
        server.url()
    );
    bench.write("strict.toml", &openai);
    bench.run(&["run", "strict.toml", "--input", "?"]).fails(1, "provider.stream_truncated");
    bench.write(
        "lenient.toml",
        &format!("{openai}omits_done = true\nmax_completion_tokens = true\n"),
    );
    bench.run(&["run", "lenient.toml", "--input", "?"]).ok();
    let sent = server.requests().pop().unwrap().body;
    assert_eq!((&sent["max_completion_tokens"], &sent["max_tokens"]), (&json!(9), &json!(null)));
    bench.write("other.toml", &format!("{}omits_done = true\n", agent(&server.url())));
    bench.run(&["run", "other.toml", "--input", "?"]).fails(2, "omits_done");
}
