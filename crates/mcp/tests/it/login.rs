//! Servers that let in who has a token.

use backstop_mcp::ClientCredentials;
use backstop_tool::{Arguments, ToolSource};
use layer0::failure::Failure;
use libtest_mimic::Trial;
use serde_json::json;

use crate::inputs::{Person, ada};
use crate::server::input::required;
use crate::server::{Script, TOKENS, text};
use crate::support::{Faulty, Way, call, checks, context, tool};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials =
        checks![over Way::HTTP: clients_log_in_again_and_again, tokens_are_kept_out_of_echoes];
    trials.extend(checks![refused_logins_show_no_secret]);
    trials
}

fn script() -> Script {
    Script { needs_login: true, ..Script::faulty("") }
}

/// Spec: Q9
async fn clients_log_in_again_and_again(way: Way) {
    let (faulty, server) = Faulty::new(way, script());
    let credentials =
        ClientCredentials::new("agent 1", "hunter2-hunter2").scopes(["files:read", "files:write"]);
    assert!(!format!("{credentials:?}").contains("hunter2"));
    let client = server.oauth(credentials).connect().await.unwrap();
    for _ in 0..12 {
        call(&client, "act").await.unwrap();
    }
    assert_eq!(faulty.calls().len(), 12);
    let grants = faulty.http().seen.lock().unwrap().grants.clone();
    assert!(grants.len() > 2, "{grants:?}");
    // Base64 of id and secret as a form has them, in the small letters of the test server.
    assert!(grants[0].starts_with("basic ywdlbnqrmtpodw50zxiylwh1bnrlcji= "), "{}", grants[0]);
    assert!(grants[0].contains("grant_type=client_credentials"), "{}", grants[0]);
    assert!(grants[0].ends_with("&scope=files%3Aread+files%3Awrite"), "{}", grants[0]);
}

/// Spec: Q9
async fn refused_logins_show_no_secret() {
    let (_faulty, server) = Faulty::new(Way::ALL[2], script());
    let error = server.connect().await.unwrap_err();
    assert_eq!(error.to_string(), "MCP server `faulty` answered HTTP 401: not");
    let (_faulty, server) = Faulty::new(Way::ALL[2], script());
    let credentials = ClientCredentials::new("agent", "hunter2-hunter2");
    let server = server.oauth(credentials.token_url("http://tokens.example/"));
    let error = server.connect().await.unwrap_err();
    let why = "MCP server `faulty` answered HTTP 401: logging in failed: \
               `http://tokens.example/` is not `https`";
    assert_eq!((error.to_string().as_str(), error.code()), (why, "mcp.initialize_failed"));
}

/// Spec: Q9, E10
async fn tokens_are_kept_out_of_echoes(way: Way) {
    let schema =
        json!({"type": "object", "properties": {"name": {"type": "string", "title": TOKENS}}});
    let described = json!({"name": "act", "description": TOKENS, "inputSchema": schema});
    let params = json!({"message": TOKENS, "requestedSchema": schema});
    let asked = required(json!({"who": {"method": "elicitation/create", "params": params}}));
    let mut failed = text(TOKENS);
    failed["isError"] = true.into();
    let structured = json!({"content": [], "structuredContent": {"a": [TOKENS]}});
    let script = Script {
        pages: vec![json!({"tools": [described]})],
        results: vec![text(TOKENS), failed, structured, asked],
        needs_login: true,
        ..Script::faulty("tells_token_in_every_call")
    };
    let (faulty, server) = Faulty::new(way, script);
    let credentials = ClientCredentials::new("agent 1", "hunter2-hunter2");
    let client = server.oauth(credentials).connect().await.unwrap();
    let listed = format!("{:?}", tool(&client, "act").spec());
    let person = Person::new(ada());
    let mut seen = vec![listed, format!("{:?}", client.listing())];
    for _ in 0..4 {
        let mut context = context();
        context.people = Some(person.clone());
        let result = tool(&client, "act").call(&Arguments::from(json!({})), &context).await;
        seen.push(format!("{result:?}"));
    }
    seen.push(format!("{:?}", person.asked.lock().unwrap()));
    for shown in &seen {
        assert!(!shown.contains("token-number"), "{shown}");
        assert!(!shown.contains("refresh-of"), "{shown}");
    }
    assert_eq!(seen.iter().filter(|shown| shown.contains("[redacted] [redacted]")).count(), 6);
    assert_eq!((faulty.calls().len(), person.asked.lock().unwrap().len()), (5, 1));
}
