//! The client that the official conformance suite drives (`cargo xtask conformance`): it connects to the URL that it
//! is given, lists the tools, and calls each once with arguments that fit.

use backstop_clock::{Clock, SystemClock};
use backstop_mcp::{ClientCredentials, McpServer};
use backstop_tool::{Arguments, ToolContext, ToolSource};
use layer0::failure::Chain;
use serde_json::{Map, Value, json};

type Failed = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let url =
        std::env::args().last().filter(|it| it.starts_with("http")).ok_or("no URL is given")?;
    let mut server = McpServer::url("suite", url);
    // What a scenario hands to its client beside the URL.
    let given: Value = match std::env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => Value::Null,
    };
    if let (Some(id), Some(secret)) = (given["client_id"].as_str(), given["client_secret"].as_str())
    {
        server = server.oauth(ClientCredentials::new(id, secret));
    }
    let client = server.connect().await?;
    for tool in client.tools() {
        let spec = tool.spec();
        let arguments = fitting(&spec.schema.value());
        let deadline = SystemClock.now().after(std::time::Duration::from_secs(30));
        let context = ToolContext::new("run_suite".into(), "s".into(), "c1".into(), deadline);
        let arguments = Arguments::new(arguments.into());
        match tool.call(&arguments, &context).await {
            Ok(output) => println!("{}: {}", spec.name, output.get()),
            Err(error) => println!("{}: failed: {}", spec.name, Chain(&error)),
        }
    }
    drop(client);
    Ok(())
}

/// Makes arguments that fit a schema: what is required, of its type.
fn fitting(schema: &Value) -> Value {
    let mut arguments = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let value = match property["type"].as_str() {
            Some("number" | "integer") => json!(1),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            _ => json!("x"),
        };
        arguments.insert(name.clone(), value);
    }
    arguments.into()
}
