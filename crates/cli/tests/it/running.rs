//! `run` and `rehearse`.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::Agent;
use backstop_store_sqlite::{Database, Durability};
use backstop_testkit::{ClosedPort, Loopback, Reply, ScriptedEndpoint};
use serde_json::{Value, json};

use crate::bench::{Bench, Ran, repository};

const ANSWER: &str = "Cause: a configuration reload made payments leak its database connections.";

fn tool_events(events: &[Value]) -> Vec<(String, String, bool)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut tools: Vec<_> = events
        .iter()
        .filter(|event| event["type"] == "tool.responded")
        .map(|event| {
            let data = &event["data"];
            (text(&data["call_id"]), text(&data["tool"]), data["ok"] == true)
        })
        .collect();
    // They are in the order of completion.
    tools.sort();
    tools
}

/// Spec: S5, S7, T5, C1
#[test]
fn triage_example_reads_the_detail_and_recovers() {
    let bench = Bench::new();
    bench.triage();
    let ran = bench.run(&["run", "triage/agent.toml"]).ok();
    assert!(ran.out.starts_with(ANSWER), "{}", ran.out);
    assert!(ran.err.contains("\n✗ latency {\"field\":\"latency_ms\""), "{}", ran.err);
    assert!(ran.err.contains("} tool.execution_failed in "), "{}", ran.err);
    assert!(
        ran.err.contains("1 error stored: 4935 characters of error text kept from the model"),
        "{}",
        ran.err
    );

    let runs = bench.run(&["runs", "--json"]).ok().json();
    let run = runs[0]["run"].as_str().unwrap();
    assert!(ran.err.contains(&format!("backstop trace {run}")), "{}", ran.err);
    let trace = bench.run(&["trace", run]).ok().out;
    let find = |text: &str| trace.find(text).unwrap_or_else(|| panic!("{text} is not in {trace}"));
    let failed = find("latency tool.execution_failed");
    let asked = find(" get_error_detail(");
    let corrected = find("latency({\"field\":\"dur_ms\"");
    assert!(failed < asked && asked < corrected && corrected < find("run.finished"));

    let errors = bench.run(&["errors", "list", "--run", run, "--json"]).ok().json();
    let error = &errors[0];
    assert_eq!((&error["tool"], &error["code"]), (&"latency".into(), &"exit_2".into()));
    assert!(error["summary"].as_str().unwrap().chars().count() <= 100);
    let shown = bench.run(&["errors", "show", error["id"].as_str().unwrap()]).ok();
    assert!(shown.out.contains("numeric fields seen: dur_ms"), "{}", shown.out);
    assert_eq!(shown.out.trim_end().chars().count(), 5_018);
}

/// The same agent over HTTP: two changed lines, the same story. Spec: P2, P10
#[test]
fn the_triage_example_runs_over_real_http() {
    let script =
        backstop_config::read_script(&repository().join("examples/triage/script.toml")).unwrap();
    let scripted = Bench::new();
    scripted.triage();
    let expected = scripted.run(&["run", "triage/agent.toml", "--json"]).ok().json().remove(0);
    for (provider, variable) in [
        ("openai", "OPENAI_API_KEY"),
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("gemini", "GEMINI_API_KEY"),
        ("ollama", "OLLAMA_API_KEY"),
        ("openai-responses", "OPENAI_API_KEY"),
        ("anthropic", "ANTHROPIC_API_KEY"),
    ] {
        for stream in [true, false] {
            let endpoint = match provider {
                "openai" => ScriptedEndpoint::openai(script.clone()),
                "gemini" => ScriptedEndpoint::gemini(script.clone()),
                "ollama" => ScriptedEndpoint::ollama(script.clone()),
                "openai-responses" => ScriptedEndpoint::openai_responses(script.clone()),
                _ => ScriptedEndpoint::anthropic(script.clone()),
            };
            let bench = Bench::new().with(variable, "canary-key-0123456789");
            let model = format!(
                "provider = \"{provider}\"\nmodel = \"test-model\"\nbase_url = \"{}\"\nstream = {stream}",
                endpoint.base_url()
            );
            let agent =
                bench.triage().replace("provider = \"script\"\nscript = \"script.toml\"", &model);
            bench.write("triage/agent.toml", &agent);
            let ran = bench.run(&["run", "triage/agent.toml", "--json"]).ok();
            let report = ran.json().remove(0);
            assert_eq!(
                report["output"].as_str().unwrap().trim(),
                expected["output"].as_str().unwrap().trim()
            );
            assert_eq!(
                tool_events(report["events"].as_array().unwrap()),
                tool_events(expected["events"].as_array().unwrap())
            );
            assert_eq!(report["usage"]["input_tokens"], expected["usage"]["input_tokens"]);
            assert_eq!(endpoint.count(), script.len());
            let first = &endpoint.requests()[0];
            let asked_to_stream = first.body["stream"] == true || first.path.contains(":stream");
            assert_eq!(asked_to_stream, stream);
            let headers = ["authorization", "x-api-key", "x-goog-api-key"];
            let sent = format!("{:?}", headers.map(|name| first.header(name)));
            assert!(sent.contains("canary-key"), "the key is sent");
            assert!(!format!("{}{}", ran.out, ran.err).contains("canary-key"), "and never shown");
        }
    }
}

#[test]
fn an_ollama_of_ones_own_needs_no_key() {
    let said = vec![ScriptedAnswer::saying("ok")];
    let endpoint = ScriptedEndpoint::ollama(said);
    let bench = Bench::new();
    let model =
        format!("provider = \"ollama\"\nmodel = \"m\"\nbase_url = \"{}\"", endpoint.base_url());
    let agent = bench.triage().replace("provider = \"script\"\nscript = \"script.toml\"", &model);
    bench.write("triage/agent.toml", &agent);
    bench.run(&["run", "triage/agent.toml"]).ok();
    assert_eq!(endpoint.requests()[0].header("authorization"), None);
}

/// Spec: E10
#[test]
fn echoed_key_is_printed_nowhere() {
    let key = "canary-key-0123456789";
    let body = json!({"error": {
        "type": "invalid_request_error", "code": "invalid_api_key",
        "message": format!("Incorrect API key provided: {key}"),
    }});
    let server = Loopback::serving(move |_| Reply::json(401, &body));
    let bench = Bench::new().with("MY_KEY", key).with("BACKSTOP_LOG", "trace");
    bench.write(
        "agent.toml",
        &format!(
            "[agent]\ninput = \"x\"\n[model]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"{}\"\napi_key_env = \"MY_KEY\"\n",
            server.url()
        ),
    );
    let ran = bench.run(&["run", "agent.toml"]).fails(1, "provider.auth_failed");
    assert!(ran.err.contains("provider.auth_failed (HTTP 401)"), "{}", ran.err);
    assert!(!format!("{}{}", ran.out, ran.err).contains(key), "{}", ran.err);
    for file in bench.files() {
        let bytes = std::fs::read(&file).unwrap();
        assert!(
            !bytes.windows(key.len()).any(|window| window == key.as_bytes()),
            "{}",
            file.display()
        );
    }
    assert_eq!(server.count(), 1, "a refused key is not tried again");
}

/// Spec: C1
#[test]
fn input_comes_from_argument_file_or_stdin() {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"ok\"\n", "");
    bench.write("question.txt", "from a file");
    let asked = |ran: Ran| ran.ok().json()[0]["events"][0]["data"]["input"].clone();
    assert_eq!(asked(bench.run(&["run", "agent.toml", "--json"])), "question");
    assert_eq!(asked(bench.run(&["run", "agent.toml", "--json", "--input", "-x"])), "-x");
    assert_eq!(
        asked(bench.run(&["run", "agent.toml", "--json", "--input", "@question.txt"])),
        "from a file"
    );
    let mut child = bench
        .command(&["run", "agent.toml", "--json", "--input", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"from a pipe").unwrap();
    assert_eq!(asked(Ran::of(child.wait_with_output().unwrap())), "from a pipe");
}

#[test]
fn the_report_has_the_keys_of_the_format() {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"ok\"\n", "");
    let report =
        bench.run(&["run", "agent.toml", "--json", "--session", "s-1"]).ok().json().remove(0);
    let mut keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        [
            "elapsed_ms",
            "error",
            "errors",
            "events",
            "outcome",
            "output",
            "reason",
            "run",
            "session",
            "usage"
        ]
    );
    assert_eq!(report["session"], "s-1");
    let definition = &report["events"][0]["data"]["agent"]["definition"];
    assert_eq!(definition["runtime"]["source"]["agent_file"]["model"]["script"], "script.toml");
}

/// Spec: C6
#[test]
fn rehearse_tells_pass_from_fail_from_mistake() {
    let bench = Bench::new();
    let scenario = |expected: &str| {
        format!(
            "name = \"a\"\ninput = \"x\"\n[[model]]\ntext = \"yes\"\n[expect]\noutput = \"{expected}\"\n"
        )
    };
    bench.write("good.toml", &scenario("yes"));
    bench.write("bad.toml", &scenario("no"));
    bench.write("wrong.toml", "name = \"a\"\ninput = \"x\"\n[[hook]]\nname = \"h\"\n");
    let ran = bench.run(&["rehearse", "good.toml"]).ok();
    assert!(ran.out.starts_with("pass  a: completed"), "{}", ran.out);
    let ran = bench.run(&["rehearse", "good.toml", "bad.toml", "--json"]).fails(1, "");
    let lines = ran.json();
    assert_eq!((&lines[0]["pass"], &lines[1]["pass"]), (&true.into(), &false.into()));
    assert_eq!(lines[1]["diff"], "output: expected \"no\", got \"yes\"");
    let ran = bench.run(&["rehearse", "good.toml", "wrong.toml"]);
    assert_eq!(ran.out, "", "nothing is run when a file is wrong");
    ran.fails(2, "wrong.toml:3: unknown field `hook`");
}

/// Spec: C6. An agent that cannot be built is an error of its file, and of no other.
#[test]
fn rehearse_runs_others_after_a_mistake() {
    let bench = Bench::new();
    bench.write(
        "bad.toml",
        "name = \"bad\"\ninput = \"x\"\n[[tools]]\nname = \"t\"\n\
         schema = { type = \"object\", properties = { a = { type = \"nope\" } } }\n",
    );
    bench.write("good.toml", "name = \"good\"\ninput = \"x\"\n[[model]]\ntext = \"done\"\n");
    let ran = bench.run(&["rehearse", "bad.toml", "good.toml"]).fails(2, "error: bad.toml: ");
    assert!(ran.out.starts_with("pass  good: completed"), "{}", ran.out);
    assert!(ran.err.contains("1 of 2 scenarios pass"), "{}", ran.err);
}

/// Spec: A1, C6
#[test]
fn scripted_denial_needs_no_reason() {
    let scenarios = repository().join("tests/scenarios");
    let scenario = scenarios.join("approval_denied_without_reason.toml");
    let ran = Bench::new().run(&["rehearse", scenario.to_str().unwrap()]).ok();
    assert!(
        ran.out.starts_with("pass  a person denies without a reason: completed"),
        "{}",
        ran.out
    );
}

/// Spec: C6
#[test]
fn rehearsed_trees_list_their_runs() {
    let bench = Bench::new();
    bench.write(
        "tree.toml",
        "name = \"a\"\ninput = \"x\"\n[[model]]\ntool_calls = [{ name = \"b\", arguments = { input = \"y\" } }]\n\
         [[model]]\ntext = \"yes\"\n[[operator]]\nname = \"b\"\n[[operator.model]]\ntext = \"no\"\n",
    );
    bench.write(
        "flow.toml",
        "name = \"a\"\ninput = \"x\"\n[[operator]]\nname = \"b\"\nkind = \"map\"\n",
    );
    let ran = bench.run(&["rehearse", "tree.toml"]).ok();
    assert!(ran.out.contains(" events and 1 run below it, "), "{}", ran.out);
    let line = &bench.run(&["rehearse", "tree.toml", "--json"]).ok().json()[0];
    let runs = line["runs"].as_array().unwrap();
    assert_eq!((&runs[0]["run"], &runs[0]["operator"]), (&line["run"], &"scenario".into()));
    assert_eq!((&runs[1]["operator"], &runs[1]["outcome"]), (&"b".into(), &"completed".into()));
    assert_eq!(runs[1]["usage"]["model_attempts"], 1);
    let refused = bench.run(&["rehearse", "flow.toml"]);
    refused.fails(2, "flow.toml:5: `steps`: this kind of workflow needs exactly one operator");
}

/// Spec: O3, D5. A run that dispatched others is printed with them, from the records.
#[test]
fn printed_runs_name_those_below() {
    let bench = Bench::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let run = runtime.block_on(async {
        let database = Database::open(bench.path().join("x.db"), Durability::Normal).await.unwrap();
        let agent = |name: &'static str, model: ScriptedProvider| {
            Agent::builder(model).name(name).store(&database)
        };
        let below = agent("below", ScriptedProvider::saying(["no"])).build().unwrap();
        let model = ScriptedProvider::calling("below", json!({ "input": "y" }), "yes");
        let above = agent("above", model).tool(below.as_tool("Answers.")).build().unwrap();
        let run = above.run("x").await.unwrap().run_id;
        database.close().await;
        run
    });
    let printed = bench.run(&["resume", run.as_str(), "--store", "sqlite:x.db", "--json"]).ok();
    let printed = &printed.json()[0];
    let runs = printed["runs"].as_array().unwrap();
    let names: Vec<_> = runs.iter().map(|run| run["operator"].as_str().unwrap()).collect();
    assert_eq!(names, ["above", "below"]);
    assert_eq!((&runs[0]["run"], &runs[1]["parent"]), (&printed["run"], &printed["run"]));
    assert!(runs.iter().all(|run| run.get("events").is_none()), "{runs:?}");
}

/// Spec: B3
#[test]
fn interrupt_ends_with_a_complete_record() {
    let bench = Bench::new();
    bench.agent(
        "[[model]]\ntext = \"working\"\ntool_calls = [{ id = \"c1\", name = \"slow\" }]\n",
        "[store]\nurl = \"sqlite:x.db\"\n[[tools]]\nkind = \"command\"\nname = \"slow\"\ndescription = \"d\"\n\
         command = [\"sh\", \"-c\", \"touch begun; sleep 300\"]\n",
    );
    let agent = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    bench.write("agent.toml", &format!("{agent}[agent.policy]\ngrant = [\"process:spawn\"]\n"));
    let child = bench
        .command(&["run", "agent.toml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !bench.path().join("begun").exists() {
        std::thread::yield_now();
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let ran = Ran::of(child.wait_with_output().unwrap()).fails(3, "cancelled (run.cancelled)");
    assert_eq!(ran.out, "working\n");
    let store = ["--store", "sqlite:x.db"];
    let run = bench.run(&[&["runs", "--json"], &store[..]].concat()).ok().json().remove(0);
    assert_eq!((&run["state"], &run["outcome"]), (&"finished".into(), &"cancelled".into()));
    let trace =
        bench.run(&[&["trace", run["run"].as_str().unwrap()], &store[..]].concat()).ok().out;
    let last: Vec<&str> = trace.lines().rev().take(3).map(|line| &line[18..38]).collect();
    assert_eq!(
        last.iter().map(|kind| kind.trim()).collect::<Vec<_>>(),
        ["run.finished", "tool.responded", "signal.received"]
    );
}

pub(crate) const ASKS: &str = "[store]\nurl = \"sqlite:x.db\"\n[agent.policy]\ngrant = [\"process:spawn\"]\n\
    [[tools]]\nkind = \"command\"\nname = \"refund\"\ndescription = \"d\"\ncommand = [\"echo\", \"refunded\"]\napproval = true\n";
pub(crate) const REFUNDS: &str = "[[model]]\ntool_calls = [{ id = \"c1\", name = \"refund\", arguments = { order = 7 } }]\n[[model]]\ntext = \"done\"\n";

/// Spec: A1, C3
#[test]
fn run_waits_for_an_absent_approver() {
    let bench = Bench::new();
    bench.agent(REFUNDS, ASKS);
    let ran = bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval: apr_");
    assert!(ran.err.contains("refund {\"order\":7}"), "{}", ran.err);
    let ran = bench.run(&["runs", "--store", "sqlite:x.db", "--json"]).ok();
    assert_eq!(ran.json()[0]["state"], "waiting_approval");
    let report = bench.run(&["run", "agent.toml", "--json"]).fails(4, "").json().remove(0);
    assert_eq!(
        (&report["outcome"], &report["reason"]),
        (&"waiting_approval".into(), &"run.waiting_approval".into())
    );
}

/// Spec: E10, S9. The key of who is asked second is as secret as that of who is asked first.
#[test]
fn echoed_key_of_a_fallback_is_printed_nowhere() {
    let key = "canary-key-0123456789";
    let refusal = json!({ "error": {
        "type": "invalid_request_error", "code": "invalid_api_key",
        "message": format!("Incorrect API key provided: {key}"),
    }});
    // The adapter hides its key in an error; the run hides it in text of the model.
    let echoes = json!({ "choices": [{
        "message": { "content": format!("your key is {key}") }, "finish_reason": "stop",
    }]});
    let closed = ClosedPort::bind();
    let unbound = closed.address();
    for (reply, code, shown) in [
        (Reply::json(401, &refusal), 1, "Incorrect API key provided: [redacted]"),
        (Reply::json(200, &echoes), 0, "your key is [redacted]"),
    ] {
        let server = Loopback::replying([reply]);
        let bench = Bench::new()
            .with("OTHER_KEY", key)
            .with("BACKSTOP_LOG", "trace")
            .with("BACKSTOP_STORE", "sqlite:x.db");
        bench.write(
            "agent.toml",
            &format!(
                "[agent]\ninput = \"x\"\n[agent.retry]\nbase_ms = 0\n[model]\nprovider = \"openai\"\n\
                 model = \"m\"\nbase_url = \"http://{unbound}/v1\"\n[[model.fallback]]\n\
                 provider = \"openai\"\nmodel = \"n\"\nbase_url = \"{}\"\n\
                 api_key_env = \"OTHER_KEY\"\n",
                server.url()
            ),
        );
        let ran = bench.run(&["run", "agent.toml"]);
        let said = format!("{}{}", ran.out, ran.err);
        assert_eq!(ran.code, code, "{said}");
        assert!(said.contains(shown), "{said}");
        assert!(!said.contains(key), "{said}");
        let sent = server.requests();
        assert_eq!(sent[0].header("authorization"), Some(format!("Bearer {key}").as_str()));
        for file in bench.files() {
            let bytes = std::fs::read(&file).unwrap();
            let found = bytes.windows(key.len()).any(|window| window == key.as_bytes());
            assert!(!found, "{}", file.display());
        }
    }
}

/// Spec: R7. Two more lines name who answers when the first one cannot.
#[test]
fn another_provider_answers_for_one_that_is_down() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let closed = ClosedPort::bind();
    let unbound = closed.address();
    bench.write("script.toml", "[[model]]\ntext = \"from the other\"\n");
    let agent = format!(
        "[agent]\ninput = \"q\"\n[agent.retry]\nbase_ms = 0\n[model]\nprovider = \"openai\"\n\
         model = \"m\"\nbase_url = \"http://{unbound}/v1\"\n"
    );
    let fallback = "[[model.fallback]]\nprovider = \"script\"\nscript = \"script.toml\"\n";
    bench.write("alone.toml", &agent);
    bench.write("agent.toml", &format!("{agent}{fallback}"));
    bench.run(&["run", "alone.toml"]).fails(1, "gave up after 3 attempts");
    let ran = bench.run(&["run", "agent.toml", "--json"]).ok().json().remove(0);
    assert_eq!((&ran["outcome"], &ran["output"]), (&"completed".into(), &"from the other".into()));
    assert_eq!(ran["usage"]["model_attempts"], 4);
    let run = ran["run"].as_str().unwrap();
    let trace = bench.run(&["trace", run]).ok().out;
    assert!(trace.contains("attempt 3 at openai/m: provider.transient"), "{trace}");
    assert!(trace.contains("attempt 4 at script/script: ok"), "{trace}");
    bench.run(&["replay", run]).ok();
}

/// Spec: P8. Each provider has the limits that stand in its own table.
#[test]
fn an_attempt_is_limited_as_its_provider_says() {
    let drips = || {
        let answer = ScriptedAnswer::saying("slow but well");
        let reply = backstop_testkit::openai::reply(&answer, &json!({ "stream": true }));
        let piece_bytes = reply.body.len() / 10;
        let reply = reply.split(piece_bytes).piece_delay(Duration::from_millis(100));
        Loopback::serving(move |_| reply.clone())
    };
    let quota = || {
        let error = json!({ "error": { "code": "insufficient_quota", "message": "no credit" } });
        Loopback::serving(move |_| Reply::json(429, &error))
    };
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let table = |server: &Loopback, ms: u32| {
        format!(
            "provider = \"openai\"\nmodel = \"m\"\nbase_url = \"{}/v1\"\n\
             timeouts = {{ attempt_ms = {ms} }}\n",
            server.url()
        )
    };
    let run = |first: &Loopback, first_ms, second: &Loopback, second_ms| {
        let (first, second) = (table(first, first_ms), table(second, second_ms));
        let agent = format!(
            "[agent]\ninput = \"q\"\n[agent.retry]\nattempts = 1\n[model]\n{first}\
             [[model.fallback]]\n{second}"
        );
        bench.write("agent.toml", &agent);
        bench.run(&["run", "agent.toml", "--json"])
    };
    let (quota, slow) = (quota(), drips());
    let ran = run(&quota, 200, &slow, 20_000).ok().json().remove(0);
    assert_eq!(ran["output"], "slow but well", "the first one's limit is not the second one's");
    run(&quota, 20_000, &slow, 200).fails(1, "provider.timeout");
    let ran = run(&slow, 200, &slow, 20_000).ok().json().remove(0);
    assert_eq!(ran["usage"]["model_attempts"], 2);
    bench.write("zero.toml", &format!("[agent]\ninput = \"q\"\n[model]\n{}", table(&slow, 0)));
    bench.run(&["run", "zero.toml"]).fails(2, "expected a whole number from 1 on");
}

/// Two scripts are two models: each continues after its own answers.
#[test]
fn resumed_run_keeps_its_script_position() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let quota = "[[model]]\nerror = { kind = \"quota_exhausted\" }\n";
    bench.write("one.toml", &[quota, "[[model]]\ntext = \"one again\"\n"].concat());
    let call = "[[model]]\ntool_calls = [{ id = \"c\", name = \"t\", arguments = {} }]\n";
    bench.write("two.toml", &[call, "[[model]]\ntext = \"never\"\n"].concat());
    let tool = "[[tools]]\nkind = \"command\"\nname = \"t\"\ndescription = \"d\"\n\
                command = [\"true\"]\napproval = true\n";
    bench.write(
        "agent.toml",
        &format!(
            "[agent]\ninput = \"q\"\n[agent.policy]\ngrant = [\"process:spawn\"]\n[model]\n\
             provider = \"script\"\nscript = \"one.toml\"\n[[model.fallback]]\n\
             provider = \"script\"\nscript = \"two.toml\"\n{tool}"
        ),
    );
    let waiting = bench.run(&["run", "agent.toml", "--json"]).json().remove(0);
    assert_eq!(waiting["outcome"], "waiting_approval", "{waiting}");
    let run = waiting["run"].as_str().unwrap();
    let trace = bench.run(&["trace", run]).ok().out;
    assert!(trace.contains("attempt 2 at script/script#2: ok"), "{trace}");
    let asked = bench.run(&["approvals", "--json"]).ok().json().remove(0);
    bench.run(&["approve", asked["id"].as_str().unwrap(), "--by", "ada"]).ok();
    let done = bench.run(&["resume", run, "--json"]).ok().json().remove(0);
    assert_eq!(done["output"], "one again", "{done}");
}

/// Spec: O1, C5
#[test]
fn schemas_of_an_agent_are_kept() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let script = "[[model]]\ntext = \"seven\"\n[[model]]\ntext = '{\"n\": 7}'\n";
    let schemas = "[agent]\ninput_schema = { type = \"object\", required = [\"q\"] }\n\
                   output_schema = { type = \"object\", required = [\"n\"] }\n";
    let agent = |schemas: &str| {
        bench.agent(script, "");
        let text = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
        bench.write("agent.toml", &text.replace("[agent]\n", schemas));
    };
    agent(schemas);
    bench.run(&["run", "agent.toml"]).fails(1, "input must be an object");
    assert!(bench.run(&["runs", "--json"]).ok().json().is_empty());
    let ran = bench.run(&["run", "agent.toml", "--input", "{\"q\": 1}", "--json"]).ok().json();
    assert_eq!(ran[0]["output"], "{\"n\": 7}");
    agent("[agent]\noutput_schema = { type = \"nothing\" }\n");
    let checked = bench.run(&["check", "agent.toml"]);
    assert_eq!(checked.code, 2, "{}", checked.out);
    assert!(checked.out.contains("correct `input_schema` or `output_schema`"), "{}", checked.out);
}
