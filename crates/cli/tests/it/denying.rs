//! `BACKSTOP_DENY_REAL_REQUESTS`: all senders of requests stay on this machine.

use backstop_testkit::{Loopback, Reply};
use serde_json::json;

use crate::behaving::{recorded, table};
use crate::bench::Bench;

const DENIED: &str = "real requests are denied in this process";

fn bench() -> Bench {
    Bench::new()
        .with("BACKSTOP_STORE", "sqlite:x.db")
        .with("BACKSTOP_DENY_REAL_REQUESTS", "1")
        .with("CLIENT_SECRET", "client-secret-0123456789")
}

/// Spec: P11, X8. It is not tried again.
#[test]
fn behavior_of_another_machine_is_not_told() {
    let bench = bench();
    let grants =
        "[agent.policy]\ngrant = [\"process:spawn\", \"network:outbound:hooks.example\"]\n";
    let hook = table("tell ops", "run.failed", "url = \"https://hooks.example/hook\"");
    bench.agent("[[model]]\nerror = { kind = \"auth_failed\" }\n", &format!("{grants}{hook}"));
    bench.run(&["run", "agent.toml"]).fails(1, "provider.auth_failed");
    let (kind, failed) = recorded(&bench, "sub_tell ops").pop().unwrap();
    let message = format!("nothing was sent: {DENIED}: `hooks.example` is another machine");
    assert_eq!((kind.as_str(), &failed["message"]), ("behavior.failed", &json!(message)));
    assert_eq!(failed["attempts"], 1);
}

/// Runs an agent with a server that has this login.
fn served(url: &str, oauth: &str) -> crate::bench::Ran {
    let bench = bench();
    let server = format!("[[mcp]]\nname = \"web\"\nurl = \"{url}\"\n{oauth}\n");
    bench.agent("[[model]]\ntext = \"x\"\n", &server);
    bench.run(&["tools", "agent.toml"])
}

/// Spec: P11, Q1
#[test]
fn server_of_another_machine_is_not_asked() {
    let what = format!("MCP server `web` is not asked: {DENIED}: `mcp.example` is another machine");
    served("https://mcp.example/mcp", "").fails(2, &what);
}

/// Spec: P11, Q9. Neither where tokens are given, nor where a server says that this is told.
#[test]
fn login_at_another_machine_is_not_tried() {
    let server = Loopback::serving(|_| {
        Reply::new(401, "text/plain", "log in").header(
            "www-authenticate",
            "Bearer resource_metadata=\"https://metadata.example/resource\"",
        )
    });
    let url = format!("{}/mcp", server.url());
    let secret = "client_id = \"me\", client_secret = \"env:CLIENT_SECRET\"";
    for (oauth, host) in [
        (format!("oauth = {{ {secret}, token_url = \"https://tokens.example/\" }}"), "tokens"),
        (format!("oauth = {{ {secret} }}"), "metadata"),
    ] {
        let what = format!("logging in failed: {DENIED}: `{host}.example` is another machine");
        served(&url, &oauth).fails(2, &what);
    }
    assert!(server.requests().iter().all(|request| request.path == "/mcp"));
}

/// Spec: P11, N4
#[test]
fn fetch_from_another_machine_is_denied() {
    let bench = bench();
    let script = "[[model]]\ntool_calls = [{ id = \"c1\", name = \"http_fetch\", \
        arguments = { url = \"http://203.0.113.7/\" } }]\n[[model]]\ntext = \"done\"\n";
    let tool = "[[tools]]\nkind = \"builtin\"\nname = \"http_fetch\"\n\
        [agent.policy]\ngrant = [\"network:outbound\", \"network:private\"]\n";
    bench.agent(script, tool);
    let ran = bench.run(&["run", "agent.toml", "--events"]).ok();
    let responded = ran.json().into_iter().find(|it| it["type"] == "tool.responded").unwrap();
    let text = responded["data"]["output"]["error"].as_str().unwrap_or_default();
    assert!(text.contains(&format!("{DENIED}: `203.0.113.7`")), "{responded}");
}
