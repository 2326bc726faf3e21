//! Revisions, environments of servers, and invalid descriptions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_mcp::{LocalSpawner, McpServer, ServerCommand, Spawn, SpawnedProgram};
use backstop_tool::{Grants, ToolSource, Toolset};
use layer0::failure::{Failure, hint};
use libtest_mimic::Trial;

use crate::server::Script;
use crate::support::{Faulty, Hasty, Way, call, checks, tool, until};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials =
        checks![over Way::WHOLE: revisions_are_spoken, servers_see_what_they_are_given];
    trials.extend(checks![over Way::HTTP: answers_are_asked_for_as_they_are]);
    trials.extend(checks![over Way::JSON: revisions_that_are_named_are_spoken, silent_servers_are_found_out_once]);
    trials.extend(checks![
        late_servers_are_asked_again,
        starts_are_bounded,
        silent_servers_are_asked_again,
        a_spawner_starts_the_program,
        secrets_of_a_spawner_stay_out,
        programs_die_with_their_client,
        impossible_servers_are_refused,
        agents_take_the_tools,
        refusals_say_how_to_mend
    ]);
    trials
}

/// Spec: Q1
async fn revisions_are_spoken(way: Way) {
    for protocol in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
        let script = Script { protocol: protocol.to_owned(), ..Script::default() };
        let (_faulty, server) = Faulty::new(way, script);
        let client = server.connect().await.unwrap();
        assert_eq!(client.listing().protocol.as_deref(), Some(protocol));
        assert_eq!(client.listing().implementation.as_deref(), Some("faulty 1.0.0"));
        assert_eq!(call(&client, "act").await.unwrap().as_string().unwrap(), "act is done");
    }
}

/// Spec: Q7
async fn servers_see_what_they_are_given(way: Way) {
    let (faulty, server) = Faulty::new(way, Script::faulty(""));
    assert!(!format!("{server:?}").contains("s3cret"), "{server:?}");
    let client = server.connect().await.unwrap();
    call(&client, "act").await.unwrap();
    let given = faulty.given();
    match way {
        Way::Stdio { .. } => assert_eq!(given, ["API_KEY", "BACKSTOP_CALL", "SCRIPT"]),
        Way::Http { .. } => {
            assert!(given.contains(&"authorization: bearer s3cret-s3cret".to_owned()), "{given:?}");
        }
    }
    assert!(!format!("{client:?}").contains("s3cret"));
}

/// Spec: Q3
async fn silent_servers_are_asked_again() {
    for fault in ["silent_on_discover", "empty_on_discover"] {
        for way in [Way::ALL[0], Way::ALL[2]] {
            let (_faulty, server) = Faulty::new(way, Script::faulty(fault));
            let client = server.clock(Arc::new(Hasty(4))).connect().await.unwrap();
            assert_eq!(client.listing().protocol.as_deref(), Some("2025-11-25"), "{fault}");
        }
    }
}

/// Spec: Q1
async fn revisions_that_are_named_are_spoken(way: Way) {
    for (fault, names) in [
        ("", "2025-06-18"),
        ("names_revision_in_words", "2025-06-18"),
        ("names_revision_in_words", "2024-11-05"),
        ("names_revision_on_discover", "2025-11-25"),
        ("names_revision_on_discover", "2024-11-05"),
    ] {
        let (protocol, names) = (names.to_owned(), names.to_owned());
        let script = Script { protocol, names, ..Script::faulty(fault) };
        let named = script.names.clone();
        let (_faulty, server) = Faulty::new(way, script);
        let client = server.connect().await.unwrap();
        assert_eq!(client.listing().protocol, Some(named), "{fault}");
        assert!(call(&client, "act").await.is_ok());
    }
    let names = "2031-01-01".to_owned();
    let (_faulty, server) =
        Faulty::new(way, Script { names, ..Script::faulty("names_revision_on_discover") });
    let error = server.connect().await.unwrap_err().to_string();
    let why = "MCP server `faulty` speaks no known revision of the protocol, but 2031-01-01";
    assert!(error.starts_with(why), "{error}");
}

fn asked(faulty: &Faulty, method: &str) -> usize {
    faulty.written().iter().filter(|message| message.contains(method)).count()
}

/// Spec: Q3, Q5. A restart costs no time again that was spent on finding out what the server is.
async fn silent_servers_are_found_out_once(way: Way) {
    let (faulty, server) = Faulty::new(way, Script::faulty("silent_on_discover_and_gone"));
    let client = server.clock(Arc::new(Hasty(10))).connect().await.unwrap();
    assert_eq!(asked(&faulty, "server/discover"), 1);
    let _ = call(&client, "repeat").await;
    assert!(call(&client, "ok").await.is_ok());
    assert_eq!((asked(&faulty, "server/discover"), faulty.starts()), (1, 2));
    assert_eq!(client.current().protocol.as_deref(), Some("2025-11-25"));
}

/// Spec: Q1. A server of the current revision alone, which takes longer to start than the probe for it waits.
async fn late_servers_are_asked_again() {
    let before = "test -e starts || sleep 1".to_owned();
    let script = Script { before, protocol: "2026-07-28".to_owned(), ..Script::default() };
    let (faulty, server) = Faulty::new(Way::ALL[0], script);
    let client = server.clock(Arc::new(Hasty(10))).connect().await.unwrap();
    assert_eq!(client.listing().protocol.as_deref(), Some("2026-07-28"));
    assert_eq!(faulty.starts(), 2);
}

/// Spec: Q3
async fn starts_are_bounded() {
    let (_faulty, server) = Faulty::new(Way::ALL[0], Script::faulty("hangs_in_initialisation"));
    let started = server.start_timeout(Duration::from_millis(300)).connect().await;
    let error = started.unwrap_err();
    assert_eq!(error.code(), "mcp.timeout");
    assert!(error.to_string().contains("its initialisation within 300ms"), "{error}");
    assert!(hint(&error).contains("`start_timeout_ms`"), "{}", hint(&error));
}

/// Spec: Q2
async fn answers_are_asked_for_as_they_are(way: Way) {
    let (faulty, server) = Faulty::new(way, Script::faulty(""));
    let client = server.connect().await.unwrap();
    call(&client, "act").await.unwrap();
    let given = faulty.given();
    let codings: Vec<_> = given.iter().filter(|it| it.starts_with("accept-encoding")).collect();
    assert!(
        codings.len() > 2 && codings.iter().all(|it| *it == "accept-encoding: identity"),
        "{given:?}"
    );
}

/// A spawner that records its commands.
#[derive(Debug, Default)]
struct Watched(Mutex<Vec<ServerCommand>>);

#[async_trait::async_trait]
impl Spawn for Watched {
    async fn spawn(&self, command: &ServerCommand) -> std::io::Result<SpawnedProgram> {
        self.0.lock().unwrap().push(command.clone());
        LocalSpawner.spawn(command).await
    }
}

/// Spec: Q7
async fn a_spawner_starts_the_program() {
    let (faulty, server) = Faulty::new(Way::ALL[0], Script::faulty("dies_in_call_idempotent"));
    let watched = Arc::new(Watched::default());
    let spawner = Arc::clone(&watched);
    let client = server.spawner(spawner).connect().await.unwrap();
    call(&client, "repeat").await.unwrap();
    let started = watched.0.lock().unwrap();
    assert_eq!((started.len(), faulty.starts()), (2, 2));
    assert_eq!(started[0], started[1]);
    assert_eq!(started[0].arguments, ["serve"]);
    assert!(!format!("{started:?}").contains("hunter2"));
}

/// A spawner that gives a program a secret that is not in the description.
#[derive(Debug)]
struct Fetching;

#[async_trait::async_trait]
impl Spawn for Fetching {
    async fn spawn(&self, command: &ServerCommand) -> std::io::Result<SpawnedProgram> {
        Ok(LocalSpawner.spawn(command).await?.secret("act is done"))
    }
}

/// Spec: Q7, E10
async fn secrets_of_a_spawner_stay_out() {
    let (_faulty, server) = Faulty::new(Way::ALL[0], Script::faulty(""));
    let client = server.spawner(Arc::new(Fetching)).connect().await.unwrap();
    assert_eq!(call(&client, "act").await.unwrap().as_string().unwrap(), "[redacted]");
}

/// Spec: Q3
async fn programs_die_with_their_client() {
    let (faulty, server) = Faulty::new(Way::ALL[0], Script::faulty(""));
    let client = server.connect().await.unwrap();
    let kept = tool(&client, "act");
    drop(client);
    let process = format!("/proc/{}", faulty.processes()[0]);
    let lives = || match std::fs::read_to_string(format!("{process}/stat")) {
        // A dead process that has not been reaped is shown as Z.
        Ok(stat) => !stat.contains(") Z "),
        Err(_) => false,
    };
    if std::path::Path::new("/proc/self").exists() {
        assert!(lives(), "its tools are still there");
        drop(kept);
        until(|| !lives()).await;
    }
}

/// Spec: Q1
async fn impossible_servers_are_refused() {
    async fn check(server: McpServer, why: &str) {
        let checked = server.check().unwrap_err().to_string();
        let error = server.connect().await.unwrap_err();
        assert_eq!((error.code(), error.to_string()), ("mcp.misconfigured", checked));
        let said = error.to_string();
        assert!(said.contains(why), "{said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
    let url = |url: &str| McpServer::url("a", url);
    check(McpServer::command::<String>("a", []), "its command is empty").await;
    check(McpServer::command("", ["x"]), "its name must be").await;
    check(McpServer::command("a b", ["x"]), "its name must be").await;
    check(McpServer::command("2a", ["x"]), "its name must be").await;
    check(McpServer::command("a".repeat(33), ["x"]), "its name must be").await;
    check(McpServer::command("a", ["x"]).header("k", "s3cret-s3cret"), "has no headers").await;
    check(McpServer::command("a", ["x"]).only(["[a"]), "pattern `[a`").await;
    check(McpServer::command("a", ["x"]).timeout(Duration::ZERO), "timeout").await;
    check(McpServer::command("a", ["x"]).start_timeout(Duration::ZERO), "its start").await;
    check(url("nowhere"), "its URL is not valid").await;
    check(url("ftp://a.example/"), "neither `http` nor `https`").await;
    check(url("https://ada:s3cret-s3cret@a.example/"), "a user name or a password").await;
    check(url("https://a.example/").header("mcp-session-id", "s3cret-s3cret"), "belongs to").await;
    check(url("https://a.example/").header("x y", "s3cret-s3cret"), "is not valid").await;
    let missing = McpServer::command("a", ["/no/such/program"]).connect().await.unwrap_err();
    assert_eq!(missing.code(), "mcp.start_failed");
    assert!(hint(&missing).contains("Install"), "{}", hint(&missing));
    let folder = McpServer::command("a", ["sh"]).folder("/no/such/folder").connect().await;
    assert_eq!(folder.unwrap_err().code(), "mcp.start_failed");
}

/// Spec: Q1, Q7
async fn agents_take_the_tools() {
    let (_stdio, program) = Faulty::new(Way::ALL[0], Script::faulty(""));
    let (_http, url) = Faulty::new(Way::ALL[2], Script::faulty(""));
    let program = program.approval(["act"]).connect().await.unwrap();
    let url = url.only(["act", "look"]).connect().await.unwrap();
    let mut tools = Toolset::new();
    for tool in program.tools() {
        tools.add(tool).unwrap();
    }
    let names: Vec<&str> = program.listing().tools.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["faulty__act", "faulty__look", "faulty__ok", "faulty__repeat", "faulty__typed"]
    );
    assert_eq!(url.tools().len(), 2);
    // Tools of two servers with one name have the same names.
    let clash = tools.add(url.tools().remove(0)).unwrap_err();
    assert_eq!(clash.to_string(), "there is already a tool named `faulty__act`");

    let arguments = || serde_json::json!({"n": 1});
    // Models use null for an omitted argument.
    let granted = Grants::parse(["process:spawn"]).unwrap();
    let admitted = tools.admit("faulty__act", serde_json::json!({"n": null}), &granted).unwrap();
    assert_eq!(admitted.arguments.text().get(), "{}");
    let denied = tools.admit("faulty__act", arguments(), &Grants::none()).err().unwrap();
    assert_eq!(denied.to_string(), "tool `faulty__act` requires `process:spawn`");
    let spec = |origin| tool(&program, origin).spec().clone();
    assert_eq!(tool(&url, "act").spec().capabilities, ["network:outbound:127.0.0.1"]);
    // The server's annotations declare that all tools may be repeated, and need no approval.
    let words = |origin| {
        let spec = spec(origin);
        (spec.idempotent, spec.exploratory, spec.approval)
    };
    assert_eq!(words("act"), (false, false, true));
    assert_eq!(words("ok"), (false, false, false));
    assert_eq!(words("repeat"), (true, false, false));
    assert_eq!(words("look"), (true, true, false));
}

/// Spec: Q1
async fn refusals_say_how_to_mend() {
    let (faulty, server) = Faulty::new(Way::ALL[2], Script::faulty("status_401_at_once"));
    let error = server.connect().await.unwrap_err();
    assert_eq!(error.to_string(), "MCP server `faulty` answered HTTP 401: who are you?");
    assert_eq!(hint(&error), "Give it a header or credentials that the server takes.");
    let address = faulty.http().stop();
    let server = McpServer::url("gone", format!("http://{address}/mcp")).variables(BTreeMap::new());
    let error = server.connect().await.unwrap_err();
    assert_eq!(error.code(), "mcp.initialize_failed");
    assert!(error.to_string().starts_with("MCP server `gone` cannot be reached: "), "{error}");
}
