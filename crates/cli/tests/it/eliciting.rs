//! MCP servers that ask for data in a call, and the person at the terminal who gives it.

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::terminal::Terminal;

const PROMPT: &str = "answer it? [y]es, [n]o: ";
/// Number of checks whether a process that was asked to end has ended.
const LOOKS: usize = 10_000;

/// A shop that asks for the delivery before it takes an order, in a request of its own or, with `modern`, in the result
/// of the call. It keeps its input and its process id.
const SHOP: &str = r#"
import json, os, sys

modern = sys.argv[1:] == ["modern"]
schema = {"type": "object", "required": ["gift", "parcels"], "properties": {
    "day": {"type": "string", "description": "when it leaves", "default": "monday"},
    "gift": {"type": "boolean"},
    "how": {"type": "string", "enum": ["air", "sea"], "default": "sea"},
    "note": {"type": "string"},
    "parcels": {"type": "integer", "minimum": 1},
}}
params = {"mode": "form", "message": "How is it delivered?", "requestedSchema": schema}
elicitation = {"method": "elicitation/create", "params": params}
tool = {"name": "order", "description": "Orders.", "inputSchema": {"type": "object"}}
info = {"name": "shop", "version": "1"}

def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def hear():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)

def taken(given):
    with open("given", "w") as file:
        json.dump(given, file)
    return {"content": [{"type": "text", "text": "order: " + given["action"]}]}

def called(asked):
    if modern:
        given = asked["params"].get("inputResponses")
        if given is None:
            return {"resultType": "input_required", "inputRequests": {"how": elicitation}}
        return {"resultType": "complete", **taken(given["how"])}
    say({"id": "q", **elicitation})
    while True:
        heard = hear()
        if heard.get("id") == "q":
            return taken(heard["result"])

def answer(asked):
    method = asked.get("method")
    if method == "initialize" and not modern:
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if modern else {}
    if method == "server/discover" and modern:
        meta = {"io.modelcontextprotocol/serverInfo": info}
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": meta, **cached}
    if method == "tools/list":
        return {"tools": [tool], **cached}
    return called(asked) if method == "tools/call" else None

with open("pid", "w") as file:
    file.write(str(os.getpid()))
while True:
    asked = hear()
    if "id" in asked and "method" in asked:
        result = answer(asked)
        error = {"code": -32601, "message": "Method not found"}
        say({"id": asked["id"], **({"error": error} if result is None else {"result": result})})
"#;

/// A bench with a shop, and an agent that orders once.
fn bench(revision: &str) -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.write("shop.py", SHOP);
    let script = "[[model]]\ntool_calls = [{ id = \"c1\", name = \"shop__order\", arguments = {} }]\n\
        [[model]]\ntext = \"It is ordered.\"\n";
    bench.agent(
        script,
        &format!(
            "[agent.policy]\ngrant = [\"process:spawn\"]\n[[mcp]]\nname = \"shop\"\n\
             command = [\"python3\", \"shop.py\", \"{revision}\"]\n"
        ),
    );
    bench
}

fn asked(bench: &Bench) -> Terminal {
    let terminal = bench.at_terminal("", &["run", "agent.toml"]);
    terminal.wait_for(PROMPT, 1);
    terminal
}

/// Returns the data that the shop got.
fn given(bench: &Bench) -> Value {
    let given = std::fs::read_to_string(bench.path().join("given")).unwrap();
    serde_json::from_str(&given).unwrap()
}

fn events(bench: &Bench) -> Vec<Value> {
    bench.run(&["trace", "last", "--json"]).ok().json()
}

fn data<'e>(events: &'e [Value], kind: &str) -> Option<&'e Value> {
    events.iter().find(|event| event["type"] == kind).map(|event| &event["data"])
}

/// Spec: Q9, A3. Wrong values are refused where they were typed, an empty line takes the default, and what was
/// given reaches the server and the record.
#[test]
fn typed_values_reach_the_server() {
    for revision in ["", "modern"] {
        let bench = bench(revision);
        let terminal = asked(&bench);
        terminal.type_in("y\n");
        for (prompt, times, typed) in [
            // The list above shows it too, with its description.
            ("  day (text) [monday]: ", 2, "\n"),
            ("  gift (y/n, required): ", 1, "perhaps\n"),
            ("  gift (y/n, required): ", 2, "y\n"),
            ("  how (one of air, sea) [sea]: ", 1, "rail\n"),
            ("  how (one of air, sea) [sea]: ", 2, "\n"),
            ("  note (text, optional): ", 1, "\n"),
            ("  parcels (integer, required): ", 1, "\n"),
            ("  parcels (integer, required): ", 2, "two\n"),
            ("  parcels (integer, required): ", 3, "0\n"),
            ("  parcels (integer, required): ", 4, "2\n"),
        ] {
            terminal.wait_for(prompt, times);
            terminal.type_in(typed);
        }
        let (code, screen) = terminal.end();
        assert_eq!(code, 0, "{revision}: {screen}");
        for said in [
            "shop asks: How is it delivered?",
            "  day (text) [monday]: when it leaves\r\n",
            "  note (text, optional)\r\n",
            "please answer y or n",
            "please give one of the values: air, sea",
            "it is required",
            "please give an integer",
            "at least 1",
            "It is ordered.",
        ] {
            assert!(screen.contains(said), "{revision}: {said}: {screen}");
        }
        let content = json!({"day": "monday", "gift": true, "how": "sea", "parcels": 2});
        assert_eq!(given(&bench), json!({"action": "accept", "content": content}), "{revision}");
        let events = events(&bench);
        let requested = data(&events, "approval.requested").unwrap();
        assert_eq!(requested["message"], "shop asks: How is it delivered?", "{revision}");
        let granted = data(&events, "approval.granted").unwrap();
        assert_eq!((&granted["by"], &granted["data"]), (&json!("ada"), &content), "{revision}");
        assert_eq!(data(&events, "tool.responded").unwrap()["output"], "order: accept");
        bench.run(&["replay", "last"]).ok();
    }
}

/// Spec: Q9. A person who declines, or leaves the prompt, is no failure of the run.
#[test]
fn declined_data_lets_the_run_go_on() {
    for (revision, typed) in [("", "n\n"), ("modern", "n\n"), ("", "\u{4}")] {
        let bench = bench(revision);
        let terminal = asked(&bench);
        terminal.type_in(typed);
        let (code, screen) = terminal.end();
        assert_eq!(code, 0, "{revision} {typed:?}: {screen}");
        assert_eq!(given(&bench), json!({"action": "decline"}), "{revision} {typed:?}");
        assert_eq!(data(&events(&bench), "tool.responded").unwrap()["output"], "order: decline");
    }
}

/// Spec: Q9. Where there is no terminal, nothing is asked.
#[test]
fn data_is_declined_without_a_terminal() {
    for revision in ["", "modern"] {
        let bench = bench(revision);
        let ran = bench.run(&["run", "agent.toml"]).ok();
        assert_eq!(ran.out, "It is ordered.\n", "{revision}");
        assert_eq!(given(&bench), json!({"action": "decline"}), "{revision}");
        let events = events(&bench);
        assert_eq!(data(&events, "approval.requested"), None, "{revision}");
        assert_eq!(data(&events, "tool.responded").unwrap()["output"], "order: decline");
    }
}

/// Spec: Q9, B3. Neither a process, an open run nor an open approval is left, and nothing is given.
#[test]
fn interrupted_prompt_leaves_nothing_behind() {
    for revision in ["", "modern"] {
        for in_form in [false, true] {
            let bench = bench(revision);
            let terminal = asked(&bench);
            if in_form {
                terminal.type_in("y\n");
                terminal.wait_for("  day (text) [monday]: ", 2);
            }
            terminal.type_in("fri\u{3}");
            let (code, screen) = terminal.end();
            assert_eq!(code, 3, "{revision} {in_form}: {screen}");
            assert!(screen.contains("withdrawn"), "{revision} {in_form}: {screen}");
            assert!(screen.contains("cancelled (run.cancelled)"), "{revision} {in_form}: {screen}");
            let runs = bench.run(&["runs", "--json"]).ok().json();
            assert_eq!((runs.len(), &runs[0]["outcome"]), (1, &json!("cancelled")));
            assert_eq!(bench.run(&["approvals", "--json"]).ok().out, "");
            bench.run(&["verify", "last"]).ok();
            ends(&std::fs::read_to_string(bench.path().join("pid")).unwrap());
            // The shop may have received the refusal before it ended.
            let given = std::fs::read_to_string(bench.path().join("given")).unwrap_or_default();
            assert!(!given.contains("accept"), "{revision} {in_form}: {given}");
        }
    }
}

/// Waits until a process is gone.
#[track_caller]
fn ends(process: &str) {
    let is_there = |_: &usize| {
        let mut kill = std::process::Command::new("kill");
        kill.args(["-0", process]).stderr(std::process::Stdio::null()).status().unwrap().success()
    };
    assert!((0..LOOKS).any(|look| !is_there(&look)), "process {process} is left");
}
