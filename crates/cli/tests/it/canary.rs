//! Every secret that a process holds, in every place that it leaves behind.

mod places;
mod secrets;
mod world;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use self::places::Places;
use self::secrets::Known;
use self::world::{GIVEN, World};
use crate::bench::Bench;
use crate::postgres::database;
use crate::running::{ASKS, REFUNDS};
use crate::tables_of_stores::values;
use crate::worker::until;

/// Output of the command, with the name of the process that wrote it.
type Outputs = Vec<(String, String)>;

/// Runs the command, and keeps its output.
fn run(world: &World, outputs: &mut Outputs, args: &[&str]) -> i32 {
    let ran = world.bench.run(args);
    outputs.push((format!("output of `{}`", args[0]), format!("{}{}", ran.out, ran.err)));
    ran.code
}

/// Runs the agent in processes of `backstop run`.
fn runs(world: &World, outputs: &mut Outputs) {
    world.leak(Known::Tool);
    let input = world.input(Known::Agent);
    let agent = ["run", "agent.toml", "--store", &world.store, "--input", &input];
    // The third turn of a session leaves a transcript.
    for more in [&["--events", "--label", "team=red"][..], &["--json"], &["-vv"]] {
        let code = run(world, outputs, &[&agent[..], &["--session", "s"], more].concat());
        assert_eq!(code, 0, "{:?}", outputs.last());
    }
    for canary in world.held(Known::Agent) {
        let label = ["--input", "x", "--label", &format!("team={}", canary.text)];
        let code = run(world, outputs, &[&agent[..4], &label].concat());
        assert_ne!(code, 0, "{}", canary.name);
    }
}

/// Serves the agent with `backstop mcp` over HTTP, and calls it with secrets in its input and its key.
fn serve(world: &World, outputs: &mut Outputs) {
    let token_file = format!("{GIVEN}/token");
    let args = ["mcp", "agent.toml", "--store", &world.store, "--listen", "127.0.0.1:0"];
    let mut command = world.bench.command(&[&args[..], &["--token-file", &token_file]].concat());
    let mut served = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(served.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("listening at http://") {
        assert_ne!(err.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let address = said.rsplit("http://").next().unwrap().split('/').next().unwrap().to_owned();
    let rest = std::thread::spawn(move || {
        let mut rest = Vec::new();
        err.read_to_end(&mut rest).unwrap();
        String::from_utf8_lossy(&rest).into_owned()
    });
    let token = std::fs::read_to_string(world.bench.path().join(token_file)).unwrap();
    world.leak(Known::Clients);
    let info = json!({ "name": "t", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
    let began = post(
        &address,
        &token,
        "",
        &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}),
    );
    let session = began.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    let session = session.expect(&began).to_owned();
    post(
        &address,
        &token,
        &session,
        &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    );
    for key in [&*format!("key {}", world.canaries[0].text), "a-key"] {
        let meta = json!({ "backstop/idempotency-key": key });
        let input = world.leaks(Known::Agent);
        let params = json!({ "name": "agent", "arguments": { "input": input }, "_meta": meta });
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
        let answer = post(&address, &token, &session, &call);
        assert!(answer.contains("completed"), "{answer}");
        outputs.push(("answer of mcp".to_owned(), answer));
    }
    let listed = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": {}});
    outputs.push(("list of mcp".to_owned(), post(&address, &token, &session, &listed)));
    stop(&mut served);
    outputs.push(("standard error of mcp".to_owned(), said + &rest.join().unwrap()));
}

/// Posts a message; returns the head and the body of the answer.
fn post(address: &str, token: &str, session: &str, message: &Value) -> String {
    let body = message.to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    let session = match session {
        "" => String::new(),
        session => format!("mcp-session-id: {session}\r\nmcp-protocol-version: 2025-06-18\r\n"),
    };
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n{session}\
         accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Stops a process as an operator does.
fn stop(process: &mut Child) {
    let id = process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(process.wait().unwrap().success());
}

/// Queues runs with secrets in their input and key, which a worker then runs.
fn work(world: &World, outputs: &mut Outputs) {
    world.leak(Known::Tool);
    let input = world.input(Known::File);
    let enqueue = ["enqueue", "agent.toml", "--store", &world.store];
    let first = ["--input", &input, "--session", "queued", "--label", "team=red"];
    assert_eq!(run(world, outputs, &[&enqueue[..], &first].concat()), 0, "{:?}", outputs.last());
    for canary in world.held(Known::File) {
        let label = ["--input", "x", "--label", &format!("team={}", canary.text)];
        let code = run(world, outputs, &[&enqueue[..], &label].concat());
        assert_ne!(code, 0, "{}", canary.name);
        // It stays in the queue, so that its key does too.
        let key = ["--input", &canary.text, "--key", &canary.text, "--not-before", "2h"];
        assert_eq!(run(world, outputs, &[&enqueue[..], &key].concat()), 0, "{:?}", outputs.last());
    }
    run(world, outputs, &["queue", "list", "--json"]);
    let args = ["worker", "agent.toml", "--store", &world.store, "--json"];
    let files = ["worker.out", "worker.err"]
        .map(|name| std::fs::File::create(world.bench.path().join(name)).unwrap());
    let [out, err] = files;
    let mut worker = world.bench.command(&args).stdout(out).stderr(err).spawn().unwrap();
    let session = ["runs", "--session", "queued", "--json"];
    until(|| world.bench.run(&session).ok().out.contains("\"finished\""));
    stop(&mut worker);
}

/// Writes files of every kind about the runs, and prints everything that the command can print of them.
fn look(world: &World, outputs: &mut Outputs) {
    let mut ids = Vec::new();
    for run in world.bench.run(&["runs", "--json"]).ok().json() {
        ids.push(run["run"].as_str().unwrap().to_owned());
    }
    for (index, id) in ids.iter().enumerate() {
        let page = format!("page-{index}.html");
        for args in [
            &["trace", id][..],
            &["trace", id, "--json"],
            &["trace", id, "--html", &page],
            &["export", id],
            &["replay", id],
        ] {
            run(world, outputs, args);
        }
    }
    for args in [
        &["runs"][..],
        &["runs", "--json"],
        &["runs", "--search", "redacted"],
        &["errors", "list", "--json"],
        &["errors", "show", "last"],
        &["results", "list", "--json"],
        &["results", "show", "last"],
        &["state", "list", "--json"],
        &["state", "list", "--json", "--scope", "agent:agent"],
        &["behaviors", "failures", "--json"],
        &["sessions", "list", "--json"],
        &["costs", "--by", "label:team"],
        &["verify", "--all"],
        &["check", "agent.toml"],
        &["tools", "agent.toml", "--json"],
        &["doctor"],
        &["copy", "--from", &world.store, "--to", "sqlite:copied.db"],
        &["backup", "backed-up.db"],
    ] {
        run(world, outputs, args);
    }
}

/// Spec: E10, S9. Each secret is said by a tool of each kind, a server, a behaviour, a person and the model.
#[test]
fn no_secret_is_left_beside_a_file() {
    leaves_no_secret("sqlite:x.db");
}

/// Spec: E10, S9. The same, and in a queue.
#[test]
fn no_secret_is_left_on_a_server() {
    if let Some(url) = database() {
        leaves_no_secret(&url);
    }
}

fn leaves_no_secret(store: &str) {
    let world = World::new(store);
    let mut outputs = Outputs::new();
    runs(&world, &mut outputs);
    serve(&world, &mut outputs);
    if store.starts_with("postgres") {
        work(&world, &mut outputs);
    }
    look(&world, &mut outputs);
    let places = Places::of(&world, outputs);
    assert_eq!(places.holders(&world.canaries), [""; 0]);
    assert_eq!(places.without_traces_of_secrets(), [""; 0], "nothing was told there");
}

/// Spec: E10, K1. People refer to a secret of the process where no agent file is read.
#[test]
fn words_of_people_are_stored_without_secrets() {
    const TOKEN: &str = "token-canary+\"x\\y\"/=%Zm9v";
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db").with("BACKSTOP_TOKEN", TOKEN);
    bench.agent(REFUNDS, ASKS);
    bench.run(&["run", "agent.toml", "--session", "s"]).fails(4, "waiting");
    let value = json!({ "note": TOKEN }).to_string();
    let mut said = String::new();
    for (args, code) in [
        (&["state", "set", "note", &value][..], 0),
        (&["state", "get", "note"], 0),
        (&["state", "set", TOKEN, "1"], 1),
        (&["cancel", "last", "--by", TOKEN], 0),
        (&["sessions", "forget", "s", "--by", TOKEN], 0),
    ] {
        let ran = bench.run(args);
        assert_eq!(ran.code, code, "{args:?}: {}{}", ran.out, ran.err);
        said += &format!("{}{}", ran.out, ran.err);
    }
    assert!(said.contains("[redacted]") && !said.contains("token-canary"), "{said}");
    for (place, text) in values("sqlite:x.db", &bench) {
        assert!(!text.contains("token-canary"), "{place}: {text}");
    }
}
