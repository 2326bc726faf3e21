//! `[[mcp]]` of agent files.

use backstop_config::{AgentFile, McpPlace};

use crate::{agent_error, written};

const BEFORE: &str = "[model]\nprovider = \"script\"\n[[mcp]]\nname = \"files\"\n";

/// Spec: Q1, Q7
#[test]
fn servers_are_read() {
    let (_folder, path) = written(
        "[model]\nprovider = \"script\"\n\
         [[mcp]]\nname = \"files\"\ncommand = [\"npx\", \"-y\", \"server\"]\nenv = [\"PATH\"]\n\
         tools = [\"read_*\"]\nidempotent = [\"read_*\"]\napproval = [\"write_*\"]\ntimeout_ms = 500\n\
         environment = { network = \"none\" }\n\
         [[mcp]]\nname = \"web\"\nurl = \"http://127.0.0.1:3001/mcp\"\n\
         headers = { authorization = \"env:TOKEN\", x-team = \"blue\" }\nread_only = [\"*\"]\n\
         oauth = { client_id = \"me\", client_secret = \"file:secret\", scopes = [\"read\"] }\n",
    );
    let file = AgentFile::read(&path).unwrap();
    let [files, web] = file.mcp.as_slice() else { panic!("{:?}", file.mcp) };
    let command = ["npx", "-y", "server"].map(str::to_owned).to_vec();
    assert_eq!(files.place, McpPlace::Command(command));
    assert_eq!(files.timeout().as_millis(), 500);
    assert_eq!(
        (files.idempotent.as_slice(), files.approval.len()),
        (&["read_*".to_owned()][..], 1)
    );
    assert!(files.environment.as_ref().unwrap().network.is_some());
    let McpPlace::Url(url) = &web.place else { panic!("{web:?}") };
    assert_eq!(url.port(), Some(3001));
    assert!(web.headers["authorization"].is_credential() && web.oauth.is_some());
    let recorded = AgentFile::from_record(&path, file.source().clone()).unwrap();
    assert_eq!(recorded.mcp[1].headers, web.headers);
}

/// Spec: Q1, Q7, C5
#[test]
fn mistakes_of_servers_name_line_and_server() {
    for (table, line, what) in [
        ("", 3, "MCP server `files` has neither `command` nor `url`"),
        ("command = [\"a\"]\nurl = \"http://x/\"", 3, "has both `command` and `url`"),
        ("command = []", 3, "`command` of MCP server `files` names no program"),
        ("url = \"ftp://x/\"", 3, "has neither `http` nor `https`"),
        ("url = \"http://me:key@x/\"", 3, "`url` of MCP server `files` holds a credential"),
        (
            "url = \"http://x/\"\nenv = []",
            3,
            "`env` of MCP server `files` does not apply to a `url`",
        ),
        ("command = [\"a\"]\nheaders = {}", 3, "`headers` of MCP server `files` does not apply"),
        (
            "url = \"http://x/\"\nheaders = { Authorization = \"Bearer abc\" }",
            3,
            "header `Authorization` of MCP server `files` holds a credential",
        ),
        (
            "url = \"http://x/\"\noauth = { client_id = \"a\", client_secret = \"b\" }",
            6,
            "`client_secret` must say where a credential is",
        ),
        ("command = [\"a\"]\ntimeout_ms = 0", 6, "`timeout_ms` must be at least 1"),
        ("command = [\"a\"]\nidempotnt = []", 6, "unknown field `idempotnt`"),
        (
            "command = [\"a\"]\n[[mcp]]\nname = \"files\"\ncommand = [\"b\"]",
            7,
            "there is already a MCP server named `files`, in line 4",
        ),
    ] {
        let error = agent_error(&format!("{BEFORE}{table}\n"));
        assert_eq!(error.line(), Some(line), "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert!(!error.hint().unwrap_or_default().is_empty(), "{error}");
        assert!(!error.to_string().contains("abc"), "a key is not repeated");
    }
}
