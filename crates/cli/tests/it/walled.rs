//! `[environment]`: the reach of tools' programs, the model's view of a wall, and refusals.

use backstop_testkit::{Loopback, Reply};
use serde_json::Value;

use crate::bench::{Bench, repository};

const GRANTS: &str = "[agent.policy]\ngrant = [\"process:spawn\"]\n";

/// An agent that calls one program, a line for `sh`, in an environment; the model then explains.
fn bench(line: &str, environment: &str) -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    std::fs::create_dir(bench.path().join("data")).unwrap();
    bench.write("data/a.txt", "hello from data");
    bench.write("other.txt", "not yours");
    let script = "[[model]]\ntool_calls = [{ id = \"c1\", name = \"look\", arguments = {} }]\n\
        [[model]]\ntext = \"It is not reached.\"\n";
    let tool = format!(
        "[[tools]]\nkind = \"command\"\nname = \"look\"\ndescription = \"d\"\n\
         command = [\"sh\", \"-c\", {line:?}]\nschema = {{ type = \"object\" }}\n"
    );
    bench.agent(script, &format!("{GRANTS}[environment]\n{environment}\n{tool}"));
    bench
}

/// Returns the code and the text that the model read.
fn read_by_the_model(bench: &Bench) -> (Value, String) {
    let ran = bench.run(&["run", "agent.toml", "--events"]).ok();
    let responded = ran.json().into_iter().find(|it| it["type"] == "tool.responded").unwrap();
    let data = &responded["data"];
    let text = data["output"]["error"].as_str().or_else(|| data["output"].as_str());
    (data["error"]["reason"].clone(), text.unwrap_or_default().to_owned())
}

/// Spec: N1, N2, N4
#[test]
fn granted_files_are_read_and_others_are_not() {
    let rules = "read = [\"./data\"]\nnetwork = \"none\"";
    let (code, text) = read_by_the_model(&bench("cat data/a.txt", rules));
    assert_eq!((code, text.as_str()), (Value::Null, "hello from data"));
    for (line, word) in [
        ("cat other.txt", "Permission denied"),
        ("echo x > data/b.txt", "data/b.txt"),
        ("cat other.txt 2>/dev/null", "said nothing"),
        ("echo 'cat: /etc/shadow: Permission denied' >&2; exit 1", "Permission denied"),
        ("printf '#!/bin/sh\\n' > data/run; ./data/run", "data/run"),
        ("echo 'no such order' >&2; exit 1", "no such order"),
    ] {
        // Nothing outside of the program sees a refused file: the reader learns what is granted.
        let (code, text) = read_by_the_model(&bench(line, rules));
        assert_eq!(code, "tool.execution_failed", "{line}: {text}");
        assert!(text.lines().next().unwrap().contains(word), "{line}: {text}");
        let granted = "[granted: read ./data, write none; network none]";
        assert_eq!(text.lines().last(), Some(granted), "{line}: {text}");
    }
    // Without rules nothing is granted or refused.
    let (_, text) = read_by_the_model(&bench("cat nothing.txt", ""));
    assert!(!text.contains("granted"), "{text}");
}

/// Spec: N4, S1. Whatever ended the program, all that it wrote can be read.
#[test]
fn every_ending_leaves_both_outputs_to_people() {
    const WRITES: &str = "echo to-out-1; echo to-err-1 >&2; ";
    for (ends, environment, timeout, code) in [
        ("exit 3", "", "", "tool.execution_failed"),
        ("exit 3", "network = \"none\"", "", "tool.execution_failed"),
        ("kill -KILL $$", "network = \"none\"", "", "tool.execution_failed"),
        ("exec sleep 60", "", "timeout_ms = 1500", "tool.timeout"),
        ("exec sleep 60", "network = \"none\"", "timeout_ms = 1500", "tool.timeout"),
        ("while :; do :; done", "cpu_ms = 1000", "", "env.resource_exceeded"),
        ("curl -sf http://example.org/", "network = \"none\"", "", "env.network_denied"),
    ] {
        let bench = bench(&format!("{WRITES}{ends}"), environment);
        let file = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
        bench.write("agent.toml", &file.replace("schema =", &format!("{timeout}\nschema =")));
        let (found, text) = read_by_the_model(&bench);
        assert_eq!(found, code, "{ends}: {text}");
        let stored = bench.run(&["errors", "list", "--json"]).ok().json().remove(0);
        let shown = bench.run(&["errors", "show", stored["id"].as_str().unwrap()]).ok().out;
        assert!(shown.contains("to-out-1") && shown.contains("to-err-1"), "{ends}: {shown}");
        assert!(text.contains("[Error ID: "), "{ends}: {text}");
    }
}

/// The example of the page, with a server in the place of the one that is installed.
///
/// Spec: N1
#[test]
fn isolation_example_starts() {
    if std::process::Command::new("node").arg("--version").output().is_err() {
        println!("skipped: there is no node here, in which the server is written");
        return;
    }
    let page = std::fs::read_to_string(repository().join("docs/isolation.md")).unwrap();
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let example = rest.split_once("```").unwrap().0;
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    for folder in ["data", "out", "node_modules/@modelcontextprotocol/server-filesystem/dist"] {
        std::fs::create_dir_all(bench.path().join(folder)).unwrap();
    }
    let path = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js";
    bench.write(path, NODE_SERVER);
    bench.agent("[[model]]\ntext = \"Done.\"\n", &format!("{GRANTS}{example}"));
    let listed = bench.run(&["tools", "agent.toml"]).ok().out;
    assert!(listed.contains("files__look"), "{listed}");
}

/// Spec: N1. What is downloaded at a start cannot be where no host is reached.
#[test]
fn examples_download_nothing_without_a_network() {
    let docs = std::fs::read_dir(repository().join("docs")).unwrap();
    for path in docs.map(|entry| entry.unwrap().path()) {
        let Ok(page) = std::fs::read_to_string(&path) else { continue };
        for table in page.split("[[mcp]]").skip(1) {
            let table = table.split("\n\n").next().unwrap();
            let downloads = table.contains("[\"npx\"") || table.contains("[\"uvx\"");
            assert!(!downloads || !table.contains("\"none\""), "{}: {table}", path.display());
        }
    }
}

/// A server of MCP with one tool, which lists what it was given.
const NODE_SERVER: &str = r#"
const fs = require('fs');
const names = fs.readdirSync(process.argv[2]);
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const tools = [{ name: 'look', description: `${names.length} files`, inputSchema: { type: 'object' } }];
  const answer = method === 'initialize'
    ? { result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'x', version: '1' } } }
    : method === 'tools/list' ? { result: { tools } } : { error: { code: -32601, message: 'unknown' } };
  console.log(JSON.stringify({ jsonrpc: '2.0', id, ...answer }));
});
"#;

/// Spec: N1. What policy grants is read too.
#[test]
fn policy_grants_files_to_programs() {
    let bench = bench("cat other.txt", "read = []");
    let file = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    bench.write(
        "agent.toml",
        &file.replace("\"process:spawn\"", "\"process:spawn\", \"fs:read:./other.txt\""),
    );
    assert_eq!(read_by_the_model(&bench), (Value::Null, "not yours".to_owned()));
}

const FETCH: &str =
    "python3 -c 'import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())' ";

/// Spec: N2, N3. A host that is not among the rules is named, and the model reads which are.
#[test]
fn denied_host_is_named_with_what_is_granted() {
    let server = Loopback::serving(|_| Reply::new(200, "text/plain", "served"));
    let line = format!("{FETCH} {}", server.url());
    let (code, text) = read_by_the_model(&bench(&line, "network = \"loopback\""));
    assert_eq!((code, text.trim()), (Value::Null, "served"));
    let rules = "network = { hosts = [\"api.example.com\"] }";
    let (code, text) = read_by_the_model(&bench(&line, rules));
    assert_eq!(code, "env.network_denied", "{text}");
    let begin = "env.network_denied: host 127.0.0.1 is not among api.example.com";
    assert!(text.starts_with(begin), "{text}");
    assert_eq!(server.count(), 1);
}

/// Spec: N1, E10. A credential is in its variable, and in nothing else.
#[test]
fn credential_is_given_and_never_shown() {
    let line = "test \"$API_TOKEN\" = s3cret-token-value && echo \"it is $API_TOKEN\"";
    let bench = bench(line, "credentials = { API_TOKEN = \"file:token\" }");
    bench.write("token", "s3cret-token-value\n");
    assert_eq!(read_by_the_model(&bench), (Value::Null, "it is [redacted]\n".to_owned()));
    let store = std::fs::read(bench.path().join("x.db")).unwrap();
    assert!(!String::from_utf8_lossy(&store).contains("s3cret-token-value"));
    std::fs::remove_file(bench.path().join("token")).unwrap();
    let (code, text) = read_by_the_model(&bench);
    assert_eq!(code, "env.credential_failed", "{text}");
    assert!(text.contains("file `token`"), "{text}");
}

/// Spec: N1, N3
#[test]
fn limits_are_told() {
    let (code, text) = read_by_the_model(&bench("while :; do :; done", "cpu_ms = 1000"));
    assert_eq!(code, "env.resource_exceeded", "{text}");
    assert!(text.starts_with("env.resource_exceeded: cpu 1000 ms reached"), "{text}");
    let (_, text) = read_by_the_model(&bench("yes | head -c 100000", "output_kib = 4"));
    assert!(text.contains("bytes left out here") && text.len() < 5_000, "{} bytes", text.len());
}

/// Spec: N1, N2. What cannot be is refused before a run begins.
#[test]
fn impossible_rules_are_refused() {
    let missing = bench("true", "read = [\"./nowhere\"]");
    let ran = missing.run(&["run", "agent.toml"]);
    ran.fails(2, "lists `./nowhere`, which is not there").fails(2, "hint: make it, or take it out");
    let checked = missing.run(&["check", "agent.toml"]);
    assert!(checked.code == 2 && checked.out.contains("nowhere"), "{}{}", checked.out, checked.err);
    assert!(!missing.path().join("x.db").exists(), "nothing was begun");
}

/// A server with one tool, which connects to a host outside the rules, and describes the result in its own words.
const SERVER: &str = r#"
import json, sys, urllib.request
for line in sys.stdin:
    asked = json.loads(line)
    method, id = asked.get('method'), asked.get('id')
    if method == 'initialize':
        result = {'protocolVersion': '2025-06-18', 'capabilities': {'tools': {}},
                  'serverInfo': {'name': 'x', 'version': '1'}}
    elif method == 'tools/list':
        result = {'tools': [{'name': 'fetch', 'inputSchema': {'type': 'object'}}]}
    elif method == 'tools/call':
        try:
            urllib.request.urlopen('http://example.org/', timeout=5)
            text = 'fetched'
        except Exception:
            text = 'the page is not to be had'
        result = {'content': [{'type': 'text', 'text': text}], 'isError': True}
    elif id is None:
        continue
    else:
        result = {}
    print(json.dumps({'jsonrpc': '2.0', 'id': id, 'result': result}), flush=True)
"#;

/// Spec: N3, Q7. Around a server, too, the model reads that a wall held, with the server's own words behind it.
#[test]
fn wall_around_a_server_is_read() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: there is no python3 here, in which the server is written");
        return;
    }
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.write("server.py", SERVER);
    let script = "[[model]]\ntool_calls = [{ id = \"c1\", name = \"web__fetch\", arguments = {} }]\n\
        [[model]]\ntext = \"It is not reached.\"\n";
    let server = "[[mcp]]\nname = \"web\"\ncommand = [\"python3\", \"server.py\"]\n\
        environment = { network = { hosts = [\"api.example.com\"] } }\n";
    bench.agent(script, &format!("{GRANTS}{server}"));
    let (code, text) = read_by_the_model(&bench);
    assert_eq!(code, "env.network_denied", "{text}");
    let line = "env.network_denied: host example.org is not among api.example.com \
                (the page is not to be had)";
    assert_eq!(text.lines().next(), Some(line), "{text}");
    // What the server said of it is kept.
    assert!(text.contains("\n[Error ID: "), "{text}");
}
