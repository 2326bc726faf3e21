//! The contract of an agent's tools: all parts of its file that determine the result of a call beyond its arguments.
//!
//! Paths and variable names are kept as written: the location of the file and the values of the variables belong to
//! this machine.

use backstop_config::AgentFile;
use serde_json::{Map, Value, json};

/// Keys of a tool's table that are part of its contract.
const TOOL_KEYS: [&str; 4] = ["kind", "command", "cwd", "env"];
/// Keys of a server's table that are part of the contract of its tools.
const SERVER_KEYS: [&str; 6] = ["command", "url", "cwd", "env", "headers", "oauth"];
/// Key of walls in a file, and below it that in a contract.
const ENVIRONMENT: &str = "environment";
const WALLS: &str = "walls";

/// Returns the contract of the agent: its grants and its servers; `None` if it has neither.
pub(super) fn agent(file: &AgentFile) -> Option<Value> {
    let source = file.source();
    let servers = tables(source, "mcp").filter_map(|table| {
        let name = table["name"].as_str()?.to_owned();
        let is_program = table.get("command").is_some();
        Some((name, contract(source, table, &SERVER_KEYS, is_program)))
    });
    let servers: Map<_, _> = servers.collect();
    let grant = source["agent"]["policy"]["grant"].as_array();
    let grant = grant.filter(|grant| !grant.is_empty());
    let is_empty = grant.is_none() && servers.is_empty();
    (!is_empty).then(|| json!({ "grant": grant, "servers": servers }))
}

/// Returns the contract of each tool that has one, by name.
pub(super) fn tools(file: &AgentFile) -> impl Iterator<Item = (String, Value)> {
    let source = file.source();
    tables(source, "tools").filter_map(|table| {
        let name = table["name"].as_str()?.to_owned();
        let is_walled = table["kind"] == "command" || matches!(&*name, "http_fetch" | "shell");
        Some((name, contract(source, table, &TOOL_KEYS, is_walled)))
    })
}

fn tables<'s>(source: &'s Value, key: &str) -> impl Iterator<Item = &'s Value> {
    source[key].as_array().into_iter().flatten()
}

fn contract(source: &Value, table: &Value, keys: &[&str], is_walled: bool) -> Value {
    let written = keys.iter().filter_map(|key| Some(((*key).to_owned(), table.get(key)?.clone())));
    let mut contract: Map<String, Value> = written.collect();
    let walls = table.get(ENVIRONMENT).or_else(|| source.get(ENVIRONMENT));
    if let Some(walls) = walls.filter(|_| is_walled) {
        contract.insert(WALLS.to_owned(), walls.clone());
    }
    Value::Object(contract)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [agent]
        name = "payer"
        [agent.policy]
        grant = ["process:spawn"]
        [model]
        provider = "script"
        script = "script.toml"
        [[tools]]
        kind = "command"
        name = "pay"
        description = "Pays."
        command = ["pay", "--all"]
        env = ["PATH"]
        timeout_ms = 1000
        [[mcp]]
        name = "files"
        command = ["files"]
        timeout_ms = 1000
        [environment]
        network = "none"
    "#;

    fn contracts(text: &str) -> (Option<Value>, Vec<(String, Value)>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.toml");
        std::fs::write(&path, text).unwrap();
        let file = AgentFile::read(&path).unwrap();
        (agent(&file), tools(&file).collect())
    }

    /// Spec: J2w
    #[test]
    fn contract_says_what_a_call_does() {
        let (agent, tools) = contracts(FILE);
        let walls = json!({ "network": "none" });
        let files = json!({ "command": ["files"], "walls": walls });
        assert_eq!(
            agent.unwrap(),
            json!({ "grant": ["process:spawn"], "servers": { "files": files } })
        );
        let pay = json!({
            "kind": "command", "command": ["pay", "--all"], "env": ["PATH"], "walls": walls,
        });
        assert_eq!(tools, [("pay".to_owned(), pay)]);
    }

    /// Spec: J2w
    #[test]
    fn what_decides_a_call_changes_the_contract() {
        let same = contracts(FILE);
        let changes = [
            ("\"pay\", \"--all\"", "\"other\""),
            ("[\"PATH\"]", "[]"),
            ("network = \"none\"", "network = \"all\""),
            ("process:spawn", "process"),
            ("[\"files\"]", "[\"others\"]"),
        ];
        for (from, to) in changes {
            assert_ne!(contracts(&FILE.replace(from, to)), same, "{from}");
        }
        let limits = FILE.replace("timeout_ms = 1000", "timeout_ms = 2000");
        assert_eq!(contracts(&limits), same, "limits are no part of it");
    }
}
