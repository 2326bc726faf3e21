//! Servers that require a token.

use backstop_mcp::{ClientCredentials, McpError};
use backstop_tool::{Arguments, Grants, ToolSource};
use layer0::failure::{Effect, Failure, Retry, hint};
use libtest_mimic::Trial;
use serde_json::json;

use crate::inputs::{Person, ada};
use crate::server::input::required;
use crate::server::{Script, TOKENS, text};
use crate::support::{Faulty, Way, call, checks, context, tool};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials =
        checks![over Way::HTTP: clients_log_in_again_and_again, tokens_are_kept_out_of_echoes];
    trials.extend(checks![
        refused_logins_show_no_secret,
        logins_are_led_to_no_private_address,
        metadata_about_another_server_is_refused,
        revoked_tokens_open_no_breaker,
        private_addresses_of_logins_are_granted,
        running_calls_are_led_to_no_private_address
    ]);
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
    // Base64 of the form-encoded id and secret, in lower case as recorded by the test server.
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

fn leading(step: &str, url: &str) -> Script {
    Script { leads: (step.to_owned(), url.to_owned()), ..script() }
}

/// Spec: Q9, N4
async fn logins_are_led_to_no_private_address() {
    for step in ["resource", "issuer", "token"] {
        for (url, address) in [
            ("http://10.0.0.1:9/x", "10.0.0.1"),
            ("https://169.254.169.254/latest", "169.254.169.254"),
            ("https://[fd00::1]/x", "fd00::1"),
            ("http://[::ffff:10.0.0.1]:9/x", "10.0.0.1"),
            ("http://0.0.0.0:PORT/resource", "0.0.0.0"),
        ] {
            let (faulty, server) = Faulty::new(Way::ALL[2], leading(step, url));
            let credentials = ClientCredentials::new("agent", "hunter2-hunter2");
            let error = server.oauth(credentials).connect().await.unwrap_err();
            // A URL without `https` receives no secret in any case.
            if step == "token" && url.starts_with("http:") {
                assert_eq!(error.code(), "mcp.initialize_failed", "{error}");
            } else {
                let McpError::AddressDenied { address: denied, .. } = &error else {
                    panic!("{step} {url}: {error}");
                };
                assert_eq!(
                    (denied.to_string().as_str(), error.code()),
                    (address, "mcp.address_denied")
                );
                assert!(error.to_string().contains(address), "{error}");
                assert!(hint(&error).contains(&format!("`network:private:{address}`")));
            }
            assert_eq!(faulty.http().seen.lock().unwrap().grants.len(), 0);
        }
    }
}

/// Spec: Q9, N4
async fn private_addresses_of_logins_are_granted() {
    let script = leading("resource", "http://0.0.0.0:PORT/resource");
    let (_faulty, server) = Faulty::new(Way::ALL[2], script);
    let credentials = ClientCredentials::new("agent", "hunter2-hunter2");
    let grants = Grants::parse(["network:private:0.0.0.0"]).unwrap();
    let client = server.oauth(credentials).grants(grants).connect().await.unwrap();
    call(&client, "act").await.unwrap();
}

/// Spec: Q9, N4
async fn running_calls_are_led_to_no_private_address() {
    let script = Script { leads_after: 1, ..leading("issuer", "http://10.0.0.1:9/x") };
    let (_faulty, server) = Faulty::new(Way::ALL[2], script);
    let credentials = ClientCredentials::new("agent", "hunter2-hunter2");
    let client = server.oauth(credentials).connect().await.unwrap();
    let mut ended = call(&client, "act").await;
    for _ in 0..6 {
        if ended.is_ok() {
            ended = call(&client, "act").await;
        }
    }
    let error = ended.unwrap_err();
    assert_eq!((error.code(), error.effect()), ("tool.permission_denied", Effect::None));
    assert!(format!("{error:?}").contains("network:private:10.0.0.1"), "{error:?}");
}

/// Spec: Q9
async fn metadata_about_another_server_is_refused() {
    for other in
        ["https://bank.example/mcp", "http://127.0.0.1:9/mcp", "http://127.0.0.1:PORT/other"]
    {
        let (faulty, server) = Faulty::new(Way::ALL[2], leading("identity", other));
        let credentials = ClientCredentials::new("agent", "hunter2-hunter2");
        let error = server.oauth(credentials).connect().await.unwrap_err();
        assert_eq!(error.code(), "mcp.initialize_failed", "{error}");
        assert!(error.to_string().contains("metadata is about another, `http"), "{error}");
        assert_eq!(faulty.http().seen.lock().unwrap().grants.len(), 0);
    }
}

/// Spec: Q3, Q9
async fn revoked_tokens_open_no_breaker() {
    let (_faulty, server) = Faulty::new(Way::ALL[2], Script::faulty("revokes_the_token"));
    let client = server.connect().await.unwrap();
    call(&client, "act").await.unwrap();
    for _ in 0..8 {
        let error = call(&client, "act").await.unwrap_err();
        let why = "not available: MCP server `faulty` answered HTTP 401: who are you?";
        assert_eq!(error.kind().to_string(), why);
        let facts = (error.code(), error.retry(), error.effect());
        assert_eq!(facts, ("tool.unavailable", Retry::Never, Effect::None));
    }
}
