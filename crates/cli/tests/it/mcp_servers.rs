//! `[[mcp]]`: tools of servers, one of them `backstop mcp`.

use crate::bench::Bench;

const STORE: &str = "sqlite:x.db";
const GRANTS: &str = "[agent.policy]\ngrant = [\"process:spawn\"]\n";

/// A clerk that `backstop mcp` serves, and an agent that calls it once with this input.
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

/// A server with an unusable tool, and a tool that is listed twice.
const ODD: &str = r#"while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"server/discover"'*) answer='"error":{"code":-32601,"message":"no"}' ;;
    *'"initialize"'*) answer='"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}' ;;
    *'"tools/list"'*) answer='"result":{"tools":[{"name":"bad","inputSchema":7},{"name":"good","inputSchema":{"type":"object"}},{"name":"good","inputSchema":{"type":"object"}}]}' ;;
    *) continue ;;
  esac
  echo '{"jsonrpc":"2.0","id":'"$id"','"$answer"'}'
done
"#;

/// Spec: Q4. Who runs an agent is told once what it is not given.
#[test]
fn tools_left_out_are_told() {
    let bench = Bench::new().with("BACKSTOP_STORE", STORE);
    bench.write("odd.sh", ODD);
    let server = "[[mcp]]\nname = \"odd\"\ncommand = [\"sh\", \"odd.sh\"]\n";
    bench.agent("[[model]]\ntext = \"done\"\n", &format!("{GRANTS}{server}"));
    let ran = bench.run(&["run", "agent.toml", "--events"]).ok();
    for what in [
        "tool `bad` of MCP server `odd` is left out: its schema is no object",
        "MCP server `odd`: tool `good` is listed twice; the first is taken",
    ] {
        assert_eq!(ran.err.matches(&format!("warning: {what}")).count(), 1, "{}", ran.err);
        let warned = |event: &serde_json::Value| {
            event["type"] == "warning" && event["data"]["message"] == what
        };
        assert!(ran.json().iter().any(warned), "{what}");
    }
    let quiet = bench.run(&["--quiet", "run", "agent.toml"]).ok();
    assert_eq!(quiet.err, "");
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
    with("[\"true\"]\ncwd = \"gone\"").fails(2, "there is no folder");
    assert!(!bench.path().join("x.db").exists(), "nothing was begun");
}

/// Spec: Q1. A person at a terminal learns what is waited for, and how long at most.
#[cfg(unix)]
#[test]
fn slow_start_is_told_at_a_terminal() {
    let bench = Bench::new().with("BACKSTOP_STORE", STORE);
    bench.write("printer.sh", PRINTER);
    let waits =
        "command = [\"sh\", \"-c\", \"until [ -e go ]; do sleep 0.1; done; . ./printer.sh\"]";
    for (limit, longest) in [("", "30s"), ("start_timeout_ms = 90000\n", "90s")] {
        let server = format!("[[mcp]]\nname = \"slow\"\n{waits}\n{limit}");
        bench.agent("[[model]]\ntext = \"done\"\n", &format!("{GRANTS}{server}"));
        let terminal = bench.at_terminal("", &["tools", "agent.toml"]);
        terminal.wait_for(&format!("MCP server `slow` is starting, for {longest} at most"), 1);
        bench.write("go", "");
        let (code, screen) = terminal.end();
        assert!(code == 0 && screen.contains("slow__print"), "{code}: {screen}");
        std::fs::remove_file(bench.path().join("go")).unwrap();
    }
}

/// Spec: Q7, N4. A server sees the variables that the file names, and no others.
#[test]
fn server_sees_only_named_variables() {
    let bench = bench("{}", "").with("TOP_SECRET", "s3cret-value").with("NAMED", "shown");
    let file = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    let (before, _) = file.split_once("command =").unwrap();
    // The end of its output is shown, and a path may be long.
    let command = "command = [\"sh\", \"-c\", \"env | grep -v ^PATH= >&2; exit 1\"]\nenv = [\"PATH\", \"NAMED\"]\n";
    bench.write("other.toml", &format!("{before}{command}"));
    let ran = bench.run(&["run", "other.toml"]);
    assert!(ran.err.contains("NAMED=shown") && !ran.err.contains("s3cret-value"), "{}", ran.err);
}

/// A server in sh that ends in its tool `print`.
const PRINTER: &str = r#"
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
    case $line in
        *'"initialize"'*) answer '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"printer","version":"1"}}' ;;
        *'"tools/list"'*) answer '"result":{"tools":[{"name":"print","inputSchema":{"type":"object"}}]}' ;;
        *'"tools/call"'*) echo "the key is $PRINTER_API_KEY" >&2; echo "out of paper" >&2; exit 3 ;;
        *'"id"'*) answer '"error":{"code":-32601,"message":"no"}' ;;
    esac
done
"#;

/// A server that dies in a call, and an agent that calls it.
fn printer(more: &str) -> Bench {
    let bench =
        Bench::new().with("BACKSTOP_STORE", STORE).with("PRINTER_API_KEY", "s3cret-of-the-printer");
    bench.write("printer.sh", PRINTER);
    let script = "[[model]]\ntool_calls = [{ id = \"c1\", name = \"printer__print\", arguments = {} }]\n\
         [[model]]\ntext = \"told\"\n";
    let server = "[[mcp]]\nname = \"printer\"\ncommand = [\"sh\", \"printer.sh\"]\n\
         env = [\"PATH\", \"PRINTER_API_KEY\"]\n";
    bench.agent(script, &format!("{GRANTS}{server}{more}\n"));
    bench
}

/// Spec: Q5, Q7. The record says how a server died in a call, and what it wrote last, without secrets.
#[test]
fn death_of_a_server_is_recorded() {
    let events = printer("").run(&["run", "agent.toml", "--events"]).ok().json();
    let responded = events.iter().find(|it| it["type"] == "tool.responded").unwrap();
    let error = &responded["data"]["error"];
    assert_eq!(error["reason"], "tool.interrupted", "{responded}");
    let message = error["message"].as_str().unwrap();
    let cause = "MCP server `printer` ended (exit status: 3); it wrote: the key is [redacted] / out of paper";
    assert!(message.ends_with(cause), "{message}");
}

/// Checks an agent file with these tables, and returns the mistakes.
fn mistakes(tables: &str) -> Vec<(u64, String)> {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"ok\"\n", tables);
    let found = bench.run(&["check", "agent.toml", "--json"]);
    let found = if tables.contains("FINE") { found.ok() } else { found.fails(2, "") };
    let mistake = |it: &serde_json::Value| {
        (it["line"].as_u64().unwrap_or(0), it["message"].as_str().unwrap().to_owned())
    };
    found.json().iter().map(mistake).collect()
}

/// Spec: Q7, W8. What a file says against itself is found before anything is started.
#[test]
fn check_finds_contradictions_of_servers() {
    #[track_caller]
    fn check(tables: &str, what: &str) {
        let found = mistakes(tables);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].1.contains(what), "{found:?}");
        assert!(found[0].0 > 0, "{found:?}");
    }
    let server = |more: &str| format!("[[mcp]]\nname = \"a\"\n{more}\n");
    let command = |more: &str| server(&format!("command = [\"sh\"]\n{more}"));
    let url = "url = \"https://mcp.example.com/mcp\"";
    check(&command("approval = [\"[a\"]"), "pattern `[a`");
    check(&server(&format!("{url}\nheaders = {{ accept = \"x\" }}")), "belongs to the protocol");
    check(
        &command("environment = { output_kib = 8 }"),
        "`output_kib` of `environment` has no effect",
    );
    let name = "[[mcp]]\nname = \"a b\"\ncommand = [\"sh\"]\n";
    check(name, "its name must be");
    // Credentials are not needed.
    let login = "oauth = { client_id = \"x\", client_secret = \"env:NO_SUCH_SECRET\" }";
    assert!(mistakes(&server(&format!("{url}\n{login}\n# FINE"))).is_empty());
}

/// Spec: N1, Q1. A server at a URL is asked by this process, which keeps to `network` too.
#[cfg(target_os = "linux")]
#[test]
fn network_of_the_file_is_for_urls_too() {
    let tables = |network: &str| {
        format!(
            "[environment]\nnetwork = {network}\n\
             [[mcp]]\nname = \"a\"\nurl = \"https://mcp.example.com/mcp\"\n"
        )
    };
    for network in ["\"none\"", "\"loopback\"", "{ hosts = [\"example.com\"] }"] {
        let found = mistakes(&tables(network));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].1.starts_with("`url` of MCP server `a` is not within `network`"),
            "{found:?}"
        );
        let bench = Bench::new();
        bench.agent("[[model]]\ntext = \"ok\"\n", &tables(network));
        let ran = bench.run(&["run", "agent.toml", "hi"]);
        ran.fails(2, "is not within `network`").fails(2, "hint: let `network`");
    }
    let fine = tables("{ hosts = [\"*.example.com\"] }") + "# FINE";
    assert!(mistakes(&fine).is_empty());
    // Invalid rules are reported once, for any number of programs.
    let small = "[environment]\nmemory_mib = 1\n[[mcp]]\nname = \"a\"\ncommand = [\"sh\"]\n";
    let found = mistakes(small);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].1.contains("limit `memory` is 1 MiB"), "{found:?}");
}

/// Spec: Q7. A typing mistake takes no approval away.
#[test]
fn approval_of_no_tool_is_refused() {
    let bench = printer("approval = [\"prnt\"]");
    let ran = bench.run(&["run", "agent.toml"]);
    ran.fails(2, "pattern `prnt` of `approval` matches none of its tools: `print`");
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
