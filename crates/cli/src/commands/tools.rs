//! `backstop tools`

use std::path::Path;
use std::process::ExitCode;

use backstop_config::{AgentFile, EnvironmentTable, McpTable, NetworkRule, ToolKind, ToolTable};
use layer0::ToolSpec;
use serde::Serialize;
use serde_json::Value;

use crate::agent_file;
use crate::args::ToolsArgs;
use crate::assemble::{self, Servers};
use crate::exit::CliError;
use crate::output::{self, format_count, note};

/// A tool with its definition for the model and its walls.
#[derive(Serialize)]
struct ShownTool<'a> {
    name: &'a str,
    /// `built-in`, `command`, `mcp` or `runtime`.
    kind: &'static str,
    /// MCP server of the tool, and the tool's name there.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<&'a str>,
    description: &'a str,
    schema: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Value>,
    capabilities: &'a [String],
    idempotent: bool,
    exploratory: bool,
    approval: bool,
    /// Walls of its program; absent without a program or without rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    walls: Option<String>,
}

/// A tool of a server that the agent does not get.
#[derive(Serialize)]
struct ShownLeftOut<'a> {
    server: &'a str,
    origin: &'a str,
    left_out: &'a str,
}

pub(crate) async fn run(args: ToolsArgs) -> Result<ExitCode, CliError> {
    let (path, mut file) = (&args.agent, agent_file::read(&args.agent)?);
    assemble::fetch_credentials(&mut file, path).await?;
    let (servers, failed) = Servers::reach(&file, path).await?;
    let agent = assemble::agent(&file, path, None);
    let agent = servers.give(agent.map_err(|error| agent_file::locate_error(error, path))?);
    let agent = assemble::build(agent, path)?;
    let sources: Vec<_> = servers.sources().collect();
    for spec in agent.definition().tools.iter() {
        let of = sources
            .iter()
            .find(|source| source.listing().tools.contains_key(&*spec.name))
            .map(|source| source.name());
        let tool = describe_tool(spec, &file, of);
        match args.json {
            true => output::json(&tool)?,
            false => print(&tool)?,
        }
    }
    for source in &sources {
        for tool in source.left_out() {
            let (server, origin, left_out) = (source.name(), &*tool.origin, &*tool.why);
            match args.json {
                true => output::json(&ShownLeftOut { server, origin, left_out })?,
                false => output::line(&format!("left out: {origin} of {server}: {left_out}"))?,
            }
        }
    }
    let count = u64::try_from(agent.definition().tools.len()).unwrap_or(u64::MAX);
    note(&format_count(count, "tool"));
    servers.close().await;
    match failed {
        Some(error) => Err(error),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn describe_tool<'a>(
    spec: &'a ToolSpec,
    file: &'a AgentFile,
    server: Option<&'a str>,
) -> ShownTool<'a> {
    let table = file.tools.iter().find(|table| *table.name == *spec.name);
    let of = server.and_then(|name| file.mcp.iter().find(|table| table.name == name));
    let (kind, environment) = match (table, of) {
        (Some(table), _) => of_table(table, file),
        (None, Some(of)) => ("mcp", of_server(of, file)),
        (None, None) => ("runtime", None),
    };
    ShownTool {
        name: &spec.name,
        kind,
        server,
        origin: spec.origin.as_deref(),
        description: &spec.description,
        schema: spec.schema.value(),
        output_schema: spec.output_schema.as_ref().map(|schema| schema.value()),
        capabilities: &spec.capabilities,
        idempotent: spec.idempotent,
        exploratory: spec.exploratory,
        approval: spec.approval,
        walls: environment.map(walls),
    }
}

fn of_table<'a>(
    table: &'a ToolTable,
    file: &'a AgentFile,
) -> (&'static str, Option<&'a EnvironmentTable>) {
    let environment = table.environment.as_ref().or(file.environment.as_ref());
    match table.kind {
        ToolKind::Command => ("command", environment),
        // The others run no program and connect to no host.
        _ => ("built-in", environment.filter(|_| matches!(&*table.name, "shell" | "http_fetch"))),
    }
}

fn of_server<'a>(table: &'a McpTable, file: &'a AgentFile) -> Option<&'a EnvironmentTable> {
    let is_program = matches!(table.place, backstop_config::McpPlace::Command(_));
    table.environment.as_ref().or(file.environment.as_ref()).filter(|_| is_program)
}

/// Returns the rules of an environment in one line.
fn walls(table: &EnvironmentTable) -> String {
    let paths = |paths: &Option<Vec<std::path::PathBuf>>| {
        let paths: Vec<_> =
            paths.iter().flatten().map(|path| Path::display(path).to_string()).collect();
        if paths.is_empty() { "none".to_owned() } else { paths.join(" ") }
    };
    let mut said = vec![match &table.network {
        None | Some(NetworkRule::All) => "network all".to_owned(),
        Some(NetworkRule::Hosts(hosts)) => format!("network {}", hosts.join(" ")),
        Some(NetworkRule::Loopback) => "network loopback".to_owned(),
        Some(_) => "network none".to_owned(),
    }];
    if table.read.is_some() || table.write.is_some() {
        said.push(format!("read {}", paths(&table.read)));
        said.push(format!("write {}", paths(&table.write)));
    }
    let limits = [
        ("cpu", table.cpu_ms, "ms"),
        ("memory", table.memory_mib, "MiB"),
        ("processes", table.processes, ""),
        ("file", table.file_mib, "MiB"),
        ("output", table.output_kib, "KiB"),
    ];
    for (name, limit, unit) in limits {
        said.extend(limit.map(|limit| format!("{name} {limit} {unit}").trim_end().to_owned()));
    }
    if table.best_effort {
        said.push("best effort".to_owned());
    }
    said.join("; ")
}

fn print(tool: &ShownTool<'_>) -> Result<(), CliError> {
    let origin = match (tool.server, tool.origin) {
        (Some(server), Some(origin)) => format!(" {origin} of {server}"),
        _ => String::new(),
    };
    output::line(&format!("{}  ({}{origin})", tool.name, tool.kind))?;
    let about = tool.description.lines().next().unwrap_or_default();
    if !about.is_empty() {
        output::line(&format!("    {about}"))?;
    }
    output::line(&format!("    schema: {}", tool.schema))?;
    let facts = [
        ("idempotent", tool.idempotent),
        ("exploratory", tool.exploratory),
        ("needs approval", tool.approval),
    ];
    let facts: Vec<&str> = facts.into_iter().filter(|it| it.1).map(|it| it.0).collect();
    let needs = match tool.capabilities {
        [] => "nothing by itself".to_owned(),
        all => all.join(", "),
    };
    output::line(&format!("    needs: {needs}"))?;
    if !facts.is_empty() {
        output::line(&format!("    is: {}", facts.join(", ")))?;
    }
    match &tool.walls {
        Some(walls) => output::line(&format!("    walls: {walls}")),
        None => Ok(()),
    }
}
