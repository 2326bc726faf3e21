//! What the model is asked besides the question.

use provider::ScriptedAnswer;
use serde_json::json;
use testkit::ScriptedEndpoint;

use crate::bench::Bench;

fn endpoint() -> ScriptedEndpoint {
    let says = |text: &str| ScriptedAnswer { text: Some(text.into()), ..ScriptedAnswer::default() };
    ScriptedEndpoint::anthropic(vec![says("A cat."), says("Sure.")])
}

fn agent(url: &str) -> String {
    format!("[model]\nprovider = \"anthropic\"\nmodel = \"m\"\nbase_url = \"{url}\"\n")
}

/// Spec: P1, D2
#[test]
fn a_picture_is_asked_about_recorded_and_remembered() {
    let server = endpoint();
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.write("agent.toml", &agent(&server.base_url()));
    bench.write("cat.gif", "GIF89a and so on");
    let question = ["run", "agent.toml", "--input", "What is it?", "--image", "cat.gif"];
    let ran = bench.run(&[&question[..], &["--session", "s", "--json"]].concat()).ok().json();
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
fn what_is_no_picture_is_refused_before_anything_is_asked() {
    let server = endpoint();
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.write("agent.toml", &agent(&server.base_url()));
    bench.write("notes.txt", "no picture");
    let ask = |image| bench.run(&["run", "agent.toml", "--input", "?", "--image", image]);
    ask("notes.txt").fails(2, "notes.txt: not a PNG, JPEG, GIF or WebP image");
    ask("absent.png").fails(2, "absent.png");
    assert!(server.requests().is_empty());
    assert!(!bench.path().join("x.db").exists());
}

/// Fields the agent file has no word for, such as how long the model may think.
#[test]
fn further_fields_of_the_body_are_sent_as_they_are() {
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
