//! `[[mcp]]`: tools of servers, of which ours is one.

use crate::bench::Bench;

const STORE: &str = "sqlite:x.db";
const GRANTS: &str = "[agent.policy]\ngrant = [\"process:spawn\"]\n";

/// A clerk that is served by `backstop mcp`, and an agent that calls it once with this input.
fn bench(input: &str, table: &str) -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", STORE);
    let clerk = "[agent]\nname = \"clerk\"\ninstructions = \"You sweep.\"\n[store]\nurl = \"sqlite:clerk.db\"\n\
        [model]\nprovider = \"script\"\nscript = \"clerk-script.toml\"\n";
    bench.write("clerk.toml", clerk);
    bench.write(
        "clerk-script.toml",
        "[[model]]\ntext = \"swept\"\n[[model]]\nerror = { kind = \"quota_exhausted\" }\n",
    );
    let script = format!(
        "[[model]]\ntool_calls = [{{ id = \"c1\", name = \"ours__clerk\", arguments = {input} }}]\n\
         [[model]]\ntext = \"told\"\n"
    );
    let backstop = env!("CARGO_BIN_EXE_backstop");
    let server = format!(
        "[[mcp]]\nname = \"ours\"\ncommand = [{backstop:?}, \"mcp\", \"clerk.toml\"]\n{table}\n"
    );
    bench.agent(&script, &format!("{GRANTS}{server}"));
    bench
}

/// Spec: Q1, Q6, Q10. Our client calls our server.
#[test]
fn our_client_calls_our_server() {
    let bench = bench("{ input = \"sweep\" }", "");
    let ran = bench.run(&["run", "agent.toml", "--events"]).ok();
    let events = ran.json();
    let started = &events[0]["data"];
    let listed = &started["mcp"][0];
    assert_eq!(
        (&listed["server"], &listed["tools"]["ours__clerk"]["origin"]),
        (&"ours".into(), &"clerk".into())
    );
    let responded = events.iter().find(|it| it["type"] == "tool.responded").unwrap();
    assert_eq!(responded["data"]["ok"], true, "{responded}");
    assert_eq!(responded["data"]["output"]["output"], "swept", "{responded}");
    let clerks = bench.run(&["runs", "--store", "sqlite:clerk.db", "--json"]).ok().json();
    assert_eq!(clerks.len(), 1);
    assert_eq!(bench.run(&["replay", "last"]).ok().code, 0);
}

/// Spec: Q2, Q10. What failed there is a tool failure here, that the model reads.
#[test]
fn failure_of_a_served_agent_is_read() {
    let bench = bench("{ input = \"\" }", "");
    let ran = bench.run(&["run", "agent.toml", "--events"]).ok();
    let events = ran.json();
    let responded = events.iter().find(|it| it["type"] == "tool.responded").unwrap();
    assert_eq!(responded["data"]["error"]["reason"], "tool.execution_failed", "{responded}");
    let text = responded["data"]["output"]["error"].as_str().unwrap();
    assert!(text.contains("input.invalid"), "{text}");
}

/// Spec: Q1. At the start there is one try; the server is named, with what it said.
#[test]
fn absent_server_ends_the_command() {
    let bench = bench("{}", "");
    let file = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    let with = |command: &str| {
        let (before, _) = file.split_once("command =").unwrap();
        bench.write("other.toml", &format!("{before}command = {command}\n"));
        bench.run(&["run", "other.toml"])
    };
    with("[\"no-such-program\"]").fails(2, "MCP server `ours`: starting `no-such-program` failed");
    with("[\"sh\", \"-c\", \"echo it is broken >&2; exit 3\"]").fails(2, "it is broken");
    assert!(!bench.path().join("x.db").exists(), "nothing was begun");
}

/// Spec: Q7, N4. A server sees the variables that the file names, and no others.
#[test]
fn server_sees_only_named_variables() {
    let bench = bench("{}", "").with("TOP_SECRET", "s3cret-value").with("NAMED", "shown");
    let file = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    let (before, _) = file.split_once("command =").unwrap();
    let command = "command = [\"sh\", \"-c\", \"env >&2; exit 1\"]\nenv = [\"PATH\", \"NAMED\"]\n";
    bench.write("other.toml", &format!("{before}{command}"));
    let ran = bench.run(&["run", "other.toml"]);
    assert!(ran.err.contains("NAMED=shown") && !ran.err.contains("s3cret-value"), "{}", ran.err);
}

/// Spec: Q1, C2
#[test]
fn tools_are_listed_with_what_holds_them() {
    let walls = "environment = { network = \"none\", processes = 64 }";
    let bench = bench("{}", walls);
    let listed = bench.run(&["tools", "agent.toml", "--json"]).ok().json();
    let clerk = &listed[0];
    assert_eq!((&clerk["name"], &clerk["origin"]), (&"ours__clerk".into(), &"clerk".into()));
    assert_eq!((&clerk["server"], &clerk["kind"]), (&"ours".into(), &"mcp".into()));
    assert_eq!(clerk["capabilities"][0], "process:spawn");
    if cfg!(target_os = "linux") {
        assert_eq!(clerk["walls"], "network none; processes 64");
    }
    let runtime = listed.iter().find(|tool| tool["name"] == "get_error_detail").unwrap();
    assert_eq!(runtime["kind"], "runtime");
    let text = bench.run(&["tools", "agent.toml"]).ok().out;
    assert!(text.contains("ours__clerk  (mcp clerk of ours)"), "{text}");
}

/// Spec: N1, N2, Q1. A server within walls reaches what they grant.
#[cfg(target_os = "linux")]
#[test]
fn server_runs_within_walls() {
    let bench = bench("{ input = \"sweep\" }", "environment = { read = [], write = [] }");
    let ran = bench.run(&["run", "agent.toml"]);
    ran.fails(2, "MCP server `ours`");
    let file = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    bench.write("agent.toml", &file.replace("write = []", "write = [\".\"]"));
    let ran = bench.run(&["run", "agent.toml", "--events"]).ok();
    let responded = ran.json().into_iter().find(|it| it["type"] == "tool.responded").unwrap();
    assert_eq!(responded["data"]["output"]["output"], "swept", "{responded}");
}
