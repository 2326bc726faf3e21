//! `env:NAME`, `file:PATH` and `command:…`, in all places that may refer to a credential.

use backstop_provider::ScriptedAnswer;
use backstop_testkit::{Loopback, Reply, ScriptedEndpoint};
use serde_json::json;

use crate::bench::Bench;

const SECRET: &str = "client-secret-0123456789";
/// Login with the user `me` and the secret.
const BASIC: &str = "Basic bWU6Y2xpZW50LXNlY3JldC0wMTIzNDU2Nzg5";

/// A bench with a command that prints the secret, and records that it ran.
fn bench() -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.write("vault.sh", &format!("echo run >> vault.log; echo ' {SECRET} '\n"));
    bench
}

/// Returns the number of times that the command ran.
fn runs_of_the_vault(bench: &Bench) -> usize {
    std::fs::read_to_string(bench.path().join("vault.log")).map_or(0, |log| log.lines().count())
}

/// Writes an agent that uses this endpoint, with a credential in a header of two of its tables.
fn asking(bench: &Bench, url: &str) {
    let model = format!("provider = \"anthropic\"\nmodel = \"m\"\nbase_url = \"{url}\"\n");
    let header = "headers = { x-gateway = \"command:sh vault.sh\" }\n";
    bench.write(
        "agent.toml",
        &format!(
            "[agent]\ninput = \"x\"\n[model]\n{model}{header}[[model.fallback]]\n{model}{header}"
        ),
    );
}

/// Spec: N1, E10. Run at the start, once for all that refers to it, and shown nowhere.
#[test]
fn command_of_a_header_runs_once_a_start() {
    let bench = bench();
    let said = format!("it is {SECRET}");
    let server = ScriptedEndpoint::anthropic(vec![ScriptedAnswer::saying(said)]);
    asking(&bench, &server.base_url());
    bench.run(&["check", "agent.toml"]).ok();
    assert_eq!(runs_of_the_vault(&bench), 0, "a check runs nothing");
    let ran = bench.run(&["run", "agent.toml"]).ok();
    assert_eq!(ran.out.lines().next(), Some("it is [redacted]"));
    assert_eq!(server.requests()[0].header("x-gateway"), Some(SECRET));
    bench.run(&["replay", "last", "--agent", "agent.toml"]).ok();
    assert_eq!(runs_of_the_vault(&bench), 1, "a replay asks nobody");
    let store = std::fs::read(bench.path().join("x.db")).unwrap();
    let store = String::from_utf8_lossy(&store);
    assert!(!store.contains(SECRET) && store.contains("command:sh vault.sh"));
}

/// A server that requires a token, and then repeats the request.
fn guarded() -> Loopback {
    Loopback::serving(|request| match (request.path.as_str(), request.header("authorization")) {
        ("/token", Some(BASIC)) => Reply::json(200, &json!({ "access_token": "token-0123456789" })),
        ("/token", _) => Reply::new(403, "text/plain", "who is that?"),
        (_, Some("Bearer token-0123456789")) => Reply::new(418, "text/plain", SECRET),
        _ => Reply::new(401, "text/plain", "log in"),
    })
}

/// Spec: N1, Q9, E10
#[test]
fn login_of_a_server_takes_any_reference() {
    for (id, secret) in [
        ("me", "command:sh vault.sh"),
        ("file:id.txt", "env:CLIENT_SECRET"),
        ("command:echo me", "file:secret.txt"),
    ] {
        let (bench, server) = (bench().with("CLIENT_SECRET", SECRET), guarded());
        bench.write("id.txt", "me\n");
        bench.write("secret.txt", SECRET);
        let url = server.url();
        bench.agent(
            "[[model]]\ntext = \"x\"\n",
            &format!(
                "[[mcp]]\nname = \"web\"\nurl = \"{url}/mcp\"\nheaders = {{ x-a = \"command:sh vault.sh\" }}\n                 oauth = {{ client_id = \"{id}\", client_secret = \"{secret}\", token_url = \"{url}/token\" }}\n"
            ),
        );
        let ran = bench.run(&["tools", "agent.toml"]).fails(2, "answered HTTP 418: [redacted]");
        assert!(!format!("{}{}", ran.out, ran.err).contains(SECRET), "{}", ran.err);
        let asked = server.requests().into_iter().find(|request| request.path == "/mcp").unwrap();
        assert_eq!(asked.header("x-a"), Some(SECRET));
        assert_eq!(runs_of_the_vault(&bench), 1, "{secret}");
    }
}

/// Spec: N1, C5, E10. What fails names the reference, and nothing that was printed.
#[test]
fn failed_reference_is_named_without_its_value() {
    let mcp = |credential: &str| {
        format!(
            "[[mcp]]\nname = \"web\"\nurl = \"http://127.0.0.1:9/\"\n             oauth = {{ client_id = \"me\", client_secret = \"{credential}\" }}\n"
        )
    };
    for (credential, what) in [
        (
            "command:sh vault.sh; exit 3",
            "`client_secret` of MCP server `web`: command `sh vault.sh; exit 3`: ended with exit status: 3",
        ),
        ("env:NOT_SET", "environment variable `NOT_SET`: is not set"),
        ("file:none", "file `none`: No such file"),
        (SECRET, "must say where a credential is"),
    ] {
        let bench = bench();
        bench.agent("[[model]]\ntext = \"x\"\n", &mcp(credential));
        let ran = bench.run(&["run", "agent.toml"]).fails(2, what);
        assert!(!ran.err.contains(SECRET) && ran.err.contains("hint: "), "{}", ran.err);
        assert!(!bench.path().join("x.db").exists(), "nothing was begun");
    }
}

/// Spec: N1, E10. What a program is given is taken out of everything, not of its own output alone.
#[test]
fn credential_of_a_program_is_never_said() {
    let bench = bench().with("API_TOKEN", SECRET);
    let script = format!("[[model]]\ntext = \"the token is {SECRET}\"\n");
    bench.agent(&script, "[environment]\ncredentials = { TOKEN = \"env:API_TOKEN\" }\n");
    let ran = bench.run(&["run", "agent.toml"]).ok();
    assert_eq!(ran.out.lines().next(), Some("the token is [redacted]"));
}
