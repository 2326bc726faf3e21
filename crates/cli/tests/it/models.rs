//! `[model]` of an agent file, and what the provider is sent.

use backstop_provider::{ErrorKind, ScriptedAnswer, ScriptedToolCall};
use backstop_testkit::{ClosedPort, Loopback, Reply, ScriptedEndpoint};
use serde_json::json;

use crate::bench::Bench;

fn says(text: &str) -> ScriptedAnswer {
    ScriptedAnswer::saying(text)
}

/// Writes an agent that asks this provider at this URL.
fn agent(bench: &Bench, provider: &str, base_url: &str, more: &str) {
    bench.write(
        "agent.toml",
        &format!(
            "[agent]\ninput = \"x\"\n[model]\nprovider = \"{provider}\"\nmodel = \"m\"\n\
             base_url = \"{base_url}\"\n{more}"
        ),
    );
}

/// Spec: P12
#[test]
fn settings_of_a_file_are_sent() {
    let bench = Bench::new();
    let server = ScriptedEndpoint::openai(vec![says("ok")]);
    let settings = "top_p = 0.5\nstop = [\"END\"]\nseed = 7\nreasoning_effort = \"low\"\n";
    agent(&bench, "openai", &server.base_url(), settings);
    bench.run(&["run", "agent.toml"]).ok();
    let body = server.requests().remove(0).body;
    let sent = json!([body["top_p"], body["stop"], body["seed"], body["reasoning_effort"]]);
    assert_eq!(sent, json!([0.5, ["END"], 7, "low"]));
}

/// Spec: P12
#[test]
fn unsupported_setting_ends_with_2_unasked() {
    let server = ScriptedEndpoint::openai_responses(vec![says("never")]);
    let url = server.base_url();
    let fallback = format!(
        "[[model.fallback]]\nprovider = \"openai-responses\"\nmodel = \"n\"\nbase_url = \"{url}\"\n"
    );
    for (provider, more) in [("openai-responses", ""), ("openai", fallback.as_str())] {
        let bench = Bench::new();
        agent(&bench, provider, &url, &format!("seed = 7\n{more}"));
        let ran = bench.run(&["run", "agent.toml"]).fails(2, "`openai-responses` has no `seed`");
        assert!(ran.err.contains("hint: take the setting out"), "{}", ran.err);
    }
    assert!(server.requests().is_empty());
}

/// Spec: E10. Literals are sent as they are; what a reference names is sent and shown nowhere.
#[test]
fn headers_of_a_file_are_sent() {
    let secrets = ["gateway-token-0123456789", "another-token-0123456789"];
    let bench = Bench::new().with("GATEWAY", secrets[0]).with("BACKSTOP_STORE", "sqlite:x.db");
    bench.write("token.txt", &format!("{}\n", secrets[1]));
    let server = ScriptedEndpoint::anthropic(vec![says(&secrets.join(" and "))]);
    let headers = "user_agent = \"triage/2\"\n[model.headers]\nx-project = \"blue\"\n\
                   x-api-key = \"env:GATEWAY\"\nx-other = \"file:token.txt\"\n";
    agent(&bench, "anthropic", &server.base_url(), headers);
    let ran = bench.run(&["run", "agent.toml"]).ok();
    assert_eq!(ran.out.lines().next(), Some("[redacted] and [redacted]"));
    let request = server.requests().remove(0);
    let sent = ["user-agent", "x-project", "x-api-key", "x-other"].map(|name| request.header(name));
    assert_eq!(sent, [Some("triage/2"), Some("blue"), Some(secrets[0]), Some(secrets[1])]);
    for file in bench.files().into_iter().filter(|file| !file.ends_with("token.txt")) {
        let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
        assert!(!secrets.iter().any(|secret| text.contains(secret)), "{}", file.display());
    }
}

/// Spec: C3, E12
#[test]
fn missing_credential_of_a_header_ends_with_2() {
    for (value, what) in [
        ("env:NO_SUCH_VARIABLE", "environment variable `NO_SUCH_VARIABLE`: is not set"),
        ("env:EMPTY", "environment variable `EMPTY`: is empty"),
        ("file:none.txt", "none.txt"),
        (
            "command:exit 3",
            "header `x-a` of the model: command `exit 3`: ended with exit status: 3",
        ),
        ("env:", "must name a variable behind `env:`"),
        ("command: ", "must name a command line behind `command:`"),
    ] {
        let bench = Bench::new().with("EMPTY", " ");
        agent(
            &bench,
            "openai",
            "http://127.0.0.1:9",
            &format!("headers = {{ x-a = \"{value}\" }}\n"),
        );
        bench.run(&["run", "agent.toml"]).fails(2, what);
    }
}

/// Azure wants its version in the query, and its key in a header of its own.
#[test]
fn azure_is_asked_as_it_wants() {
    for (provider, path) in [
        ("openai", "/v1/chat/completions?api-version=2024-10-21"),
        ("openai-responses", "/v1/responses?api-version=2024-10-21"),
    ] {
        let bench = Bench::new().with("AZURE_OPENAI_API_KEY", "azure-key-0123456789");
        let server = match provider {
            "openai" => ScriptedEndpoint::openai(vec![says("ok")]),
            _ => ScriptedEndpoint::openai_responses(vec![says("ok")]),
        };
        let azure = "api_key_env = \"AZURE_OPENAI_API_KEY\"\napi_version = \"2024-10-21\"\n\
                     max_output_tokens = 9\n";
        agent(&bench, provider, &server.base_url(), azure);
        // The server knows no queries; what counts is what it was sent.
        let _ = bench.run(&["run", "agent.toml"]);
        let request = server.requests().remove(0);
        assert_eq!(request.path, path);
        let sent = ["api-key", "authorization"].map(|name| request.header(name));
        assert_eq!(sent, [Some("azure-key-0123456789"), None]);
        assert_eq!(request.body.get("max_tokens"), None);
    }
}

#[test]
fn stream_options_can_be_left_out() {
    for (more, sent) in [("", true), ("stream_options = false\n", false)] {
        let bench = Bench::new();
        let server = ScriptedEndpoint::openai(vec![says("ok")]);
        agent(&bench, "openai", &server.base_url(), more);
        bench.run(&["run", "agent.toml"]).ok();
        assert_eq!(server.requests()[0].body.get("stream_options").is_some(), sent);
    }
}

/// Mistral refuses `stream_options`, and takes ids of calls with nine characters only.
#[test]
fn dialect_of_a_file_changes_the_request() {
    for (more, has_options, id) in
        [("", true, "call-of-ten"), ("dialect = \"mistral\"\n", false, "")]
    {
        let call = ScriptedToolCall::new("call-of-ten", "get_error_detail", json!({}));
        let server = ScriptedEndpoint::openai(vec![
            ScriptedAnswer::default().tool_calls([call]),
            says("ok"),
        ]);
        let bench = Bench::new();
        agent(&bench, "openai", &server.base_url(), more);
        bench.run(&["run", "agent.toml"]).ok();
        let body = server.requests().remove(1).body;
        assert_eq!(body.get("stream_options").is_some(), has_options, "{body}");
        let messages = body["messages"].as_array().unwrap();
        let sent = messages.iter().find_map(|it| it["tool_calls"][0]["id"].as_str()).unwrap();
        match id {
            "" => assert_eq!(sent.len(), 9, "{sent}"),
            id => assert_eq!(sent, id),
        }
    }
}

/// Some endpoints end an answer without a reason, which is else an answer that was cut.
#[test]
fn missing_finish_reason_needs_the_key() {
    let answer = "data: {\"choices\":[{\"delta\":{\"content\":\"whole\"}}]}\n\ndata: [DONE]\n\n";
    let once = "[agent.retry]\nattempts = 1\n";
    for (more, code) in [("", 1), ("omits_finish_reason = true\n", 0)] {
        let server = Loopback::serving(move |_| Reply::events(answer));
        let bench = Bench::new();
        agent(&bench, "openai", &server.url(), &format!("{more}{once}"));
        let ran = bench.run(&["run", "agent.toml"]);
        assert_eq!(ran.code, code, "{}{}", ran.out, ran.err);
        assert!(code == 1 || ran.out.starts_with("whole"), "{}", ran.out);
    }
}

/// Spec: E12
#[test]
fn key_of_another_provider_is_refused() {
    for (provider, more, key) in [
        ("anthropic", "api_version = \"x\"\n", "api_version"),
        ("gemini", "stream_options = false\n", "stream_options"),
        ("script", "user_agent = \"x\"\n", "user_agent"),
        ("script", "headers = { a = \"b\" }\n", "headers"),
    ] {
        let bench = Bench::new();
        agent(&bench, provider, "http://127.0.0.1:9", more);
        let what = format!("`{key}` does not apply to `provider = \"{provider}\"`");
        bench.run(&["run", "agent.toml"]).fails(2, &what);
    }
}

/// Spec: D7. A fork asks the model that it names, and no other.
#[test]
fn fork_with_a_model_asks_no_other() {
    let server =
        ScriptedEndpoint::openai([says("ok"), ScriptedAnswer::failing(ErrorKind::Transient)]);
    let others = ScriptedEndpoint::openai([says("never")]);
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let other = |table: &str, model: &str| {
        let url = others.base_url();
        format!("[[model.{table}]]\nprovider = \"openai\"\n{model}base_url = \"{url}\"\n")
    };
    let more = format!(
        "{}{}[agent.retry]\nattempts = 1\n",
        other("pool", "model = \"b\"\n"),
        other("fallback", "model = \"c\"\n")
    );
    agent(&bench, "openai", &server.base_url(), "");
    bench.run(&["run", "agent.toml"]).ok();
    agent(&bench, "openai", &server.base_url(), &more);
    let fork = ["fork", "last", "--at", "1", "--agent", "agent.toml", "--model", "n"];
    let forked = bench.run(&fork).fails(1, "");
    assert!(
        forked.err.contains("--model leaves out 2 other models of the agent's pool"),
        "{}",
        forked.err
    );
    let asked: Vec<_> = server.requests().into_iter().map(|it| it.body["model"].clone()).collect();
    assert_eq!(asked, ["m", "n"]);
    assert!(others.requests().is_empty());
}

/// Spec: B1. Each attempt costs what its provider asks, cached tokens at their own rate.
#[test]
fn attempts_cost_what_their_provider_asks() {
    use layer0::usage::TokenUsage;
    let usage = TokenUsage::new(1_000, 100).cached_tokens(400).cache_write_tokens(200);
    let closed = ClosedPort::bind();
    let unbound = closed.address();
    let own = "price = { input_per_mtok = 3.0, output_per_mtok = 15.0, \
               cached_input_per_mtok = 0.5, cache_write_per_mtok = 4.0 }\n";
    for (first, second, cost) in [
        ("price = { input_per_mtok = 9, output_per_mtok = 9 }\n", own, json!(0.0037)),
        // A sum without the other's would be too low.
        ("", own, json!(null)),
    ] {
        let bench = Bench::new();
        let answer = says("ok").usage(usage);
        let server = ScriptedEndpoint::anthropic(vec![answer]);
        let fallback = format!(
            "[[model.fallback]]\nprovider = \"anthropic\"\nmodel = \"n\"\nbase_url = \"{}\"\n{second}",
            server.base_url()
        );
        agent(&bench, "openai", &format!("http://{unbound}/v1"), &format!("{first}{fallback}"));
        let file = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
        bench.write("agent.toml", &file.replace("[model]", "[agent.retry]\nbase_ms = 0\n[model]"));
        let report = bench.run(&["run", "agent.toml", "--json"]).ok().json().remove(0);
        assert_eq!(report["usage"]["cost_usd"], cost, "{report}");
    }
}

/// Spec: B1. A known model has a price at its provider itself; no other is guessed.
#[test]
fn known_model_needs_no_price() {
    let price = "price = { input_per_mtok = 3.0, output_per_mtok = 15.0 }\n";
    for (model, more, code, text) in [
        ("claude-sonnet-4-5", "", 1, "real requests are denied"),
        ("claude-of-tomorrow", "", 2, "hint: add `[agent.price]` with `input_per_mtok` and"),
        ("claude-of-tomorrow", price, 1, "real requests are denied"),
        ("claude-sonnet-4-5", "base_url = \"https://gateway.example.com\"\n", 2, "needs a price"),
    ] {
        let bench = Bench::new()
            .with("ANTHROPIC_API_KEY", "key-0123456789")
            .with("BACKSTOP_DENY_REAL_REQUESTS", "1");
        bench.write(
            "agent.toml",
            &format!(
                "[agent]\ninput = \"x\"\n[agent.budget]\nmax_cost_usd = 1\n[model]\n\
                 provider = \"anthropic\"\nmodel = \"{model}\"\n{more}"
            ),
        );
        bench.run(&["run", "agent.toml"]).fails(code, text);
    }
}

/// Spec: P12. Each marks what it sends to be cached, unless its own table says otherwise.
#[test]
fn cache_marks_can_be_left_out() {
    for (provider, mark) in [("anthropic", "cache_control"), ("bedrock", "cachePoint")] {
        for (more, is_marked) in [("", true), ("cache = true\n", true), ("cache = false\n", false)]
        {
            let server = match provider {
                "anthropic" => ScriptedEndpoint::anthropic(vec![says("ok")]),
                _ => ScriptedEndpoint::bedrock(vec![says("ok")]),
            };
            let bench = Bench::new()
                .with("ANTHROPIC_API_KEY", "key-0123456789")
                .with("AWS_BEARER_TOKEN_BEDROCK", "key-0123456789")
                .with("AWS_REGION", "eu-west-1");
            agent(&bench, provider, &server.base_url(), more);
            let file = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
            // Only Claude is sent marks.
            let file = file.replace("model = \"m\"", "model = \"anthropic.claude-sonnet-4-5\"");
            bench.write("agent.toml", &file);
            bench.run(&["run", "agent.toml"]).ok();
            let sent = server.requests().remove(0).body.to_string();
            assert_eq!(sent.contains(mark), is_marked, "{provider} {more}: {sent}");
        }
    }
    let bench = Bench::new();
    agent(&bench, "openai", "http://127.0.0.1:9", "cache = false\n");
    bench.run(&["run", "agent.toml"]).fails(2, "`cache` does not apply to `provider = \"openai\"`");
}

/// Calls are spread over the entries of a pool, and what its keys say is never shown.
#[test]
fn calls_are_spread_over_a_pool() {
    let keys = ["first-key-0123456789", "second-key-0123456789"];
    let bench = Bench::new().with("FIRST_KEY", keys[0]).with("SECOND_KEY", keys[1]);
    let server = ScriptedEndpoint::openai(vec![says(&keys.join(" ")); 2]);
    let url = server.base_url();
    let pool = format!(
        "api_key_env = \"FIRST_KEY\"\n[[model.pool]]\nprovider = \"openai\"\nbase_url = \"{url}\"\n\
         api_key_env = \"SECOND_KEY\"\nrequests_per_minute = 60\ncooldown_ms = 5000\n"
    );
    agent(&bench, "openai", &url, &pool);
    for _ in 0..2 {
        let ran = bench.run(&["run", "agent.toml"]).ok();
        assert_eq!(ran.out.lines().next(), Some("[redacted] [redacted]"));
    }
    let asked = bench.run(&["trace", "last"]).ok();
    assert!(asked.out.contains("openai/m"), "{}", asked.out);
}

#[test]
fn a_rest_that_nobody_bridges_is_a_mistake() {
    let fallback = "[[model.fallback]]\nprovider = \"script\"\nscript = \"s.toml\"\n";
    for table in ["", fallback] {
        let bench = Bench::new();
        bench.write("s.toml", "[[model]]\ntext = \"x\"\n");
        agent(&bench, "openai", "http://127.0.0.1:1", &format!("{table}cooldown_ms = 1000\n"));
        let ran = bench.run(&["run", "agent.toml"]).fails(2, "`cooldown_ms` needs another");
        assert!(ran.err.contains("hint: add `[[model.pool]]` entries"), "{}", ran.err);
        let ran = bench.run(&["check", "agent.toml"]).fails(2, "1 mistake");
        assert!(ran.out.contains("`cooldown_ms` needs another"), "{}", ran.out);
    }
}

/// Spec: C5
#[test]
fn mistakes_of_a_pool_name_their_lines() {
    let bench = Bench::new();
    let pool = "[[model.pool]]\nprovider = \"anthropic\"\nrequests_per_minute = 0\n";
    agent(&bench, "openai", "http://127.0.0.1:1", pool);
    let ran = bench.run(&["check", "agent.toml"]).fails(2, "1 mistake");
    assert!(ran.out.contains("must be at least 1"), "{}", ran.out);
    let pool = "[[model.pool]]\nprovider = \"anthropic\"\nomits_done = true\n";
    agent(&bench, "openai", "http://127.0.0.1:1", pool);
    let ran = bench.run(&["check", "agent.toml"]).fails(2, "1 mistake");
    assert!(ran.out.contains("agent.toml:7: `omits_done` does not apply"), "{}", ran.out);
}
