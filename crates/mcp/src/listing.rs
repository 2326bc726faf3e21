//! The list of a server's tools, within limits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use backstop_tool::{LeftOut, ListedTool, Schema, ToolListing};
use layer0::{JsonText, ToolSpec, push_hex};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::McpError;
use crate::connection::Connection;
use crate::fault::McpFault;
use crate::names::model_name;
use crate::server::{Settings, sanitize_name};

/// Maximum number of tools.
const MAX_TOOLS: usize = 1_000;
/// Maximum number of pages.
const MAX_PAGES: usize = 20;
/// Maximum size of a tool's description, in bytes.
const MAX_TOOL_BYTES: usize = 1024 * 1024;
/// Maximum size of a cursor, in bytes.
const MAX_CURSOR_BYTES: usize = 64 * 1024;
/// Reason for leaving out a tool that `rmcp` rejects.
const BAD_HEADERS: &str = "the headers that its schema asks for cannot be sent";
/// Extra time that the agent allows for a call, so that the tool's own limit passes first.
const GRACE: Duration = Duration::from_secs(1);

/// Reason for leaving out a tool that can only be called as a task.
const ONLY_AS_TASK: &str = "it can only be called as a task, which is not supported";

/// The tools that a server listed, in its order.
pub(crate) struct ToolList {
    entries: Vec<ToolListEntry>,
    /// Defects of the list as a whole.
    warnings: Vec<String>,
}

/// A listed tool.
struct ToolListEntry {
    /// Name of the tool at the server; empty if it has none.
    origin: String,
    /// The tool's description, or the reason that it cannot be read.
    said: Result<Value, String>,
}

/// The tools of a listing.
pub(crate) struct Made {
    pub(crate) tools: Vec<MadeTool>,
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) listing: ToolListing,
}

/// A usable tool.
pub(crate) struct MadeTool {
    pub(crate) spec: ToolSpec,
    /// Name of the tool at the server.
    pub(crate) origin: Arc<str>,
    pub(crate) output: Option<Schema>,
}

impl ToolList {
    /// Requests all tools of a server.
    pub(crate) async fn read(
        connection: &Connection,
        settings: &Settings,
    ) -> Result<Self, McpError> {
        let stderr = || connection.stderr().map(|stderr| stderr.text()).unwrap_or_default();
        let server = || settings.name.clone();
        pages(connection, settings).await.map_err(|fault| match fault {
            McpFault::TimedOut(after) => McpError::TimedOut {
                server: server(),
                what: "the listing of its tools",
                after,
                was_just_started: true,
                said: connection.stderr().map(|stderr| stderr.after("")).unwrap_or_default(),
                stderr: stderr(),
            },
            fault => McpError::List {
                server: server(),
                why: settings.secrets.redact(&fault.to_string()),
                stderr: stderr(),
            },
        })
    }

    /// Returns the defects of the list as a whole.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the names of all tools at the server.
    pub(crate) fn origins(&self) -> BTreeSet<String> {
        self.entries.iter().map(|entry| entry.origin.clone()).filter(|it| !it.is_empty()).collect()
    }

    /// Builds the tools of the list.
    pub(crate) fn make(
        &self,
        connection: &Connection,
        settings: &Settings,
    ) -> Result<Made, McpError> {
        let mut listing = ToolListing::new(&settings.name);
        listing.implementation = connection.implementation();
        listing.protocol = connection.protocol();
        let mut made = Made { tools: Vec::new(), left_out: Vec::new(), listing };
        for ToolListEntry { origin, said } in &self.entries {
            if !settings.wants(origin) {
                continue;
            }
            let Some(name) = model_name(&settings.name, origin) else {
                made.left_out.push(LeftOut::new(origin, "it has no name"));
                continue;
            };
            if let Some(other) = made.listing.tools.get(&name) {
                return Err(McpError::Clash {
                    server: settings.name.clone(),
                    one: other.origin.clone(),
                    other: origin.clone(),
                    name,
                });
            }
            let said = said.as_ref().map_err(Clone::clone);
            match said.and_then(|said| Ok((make(said, origin, &name, settings)?, digest(said)))) {
                Ok((tool, digest)) => {
                    made.tools.push(tool);
                    made.listing.tools.insert(name, ListedTool::new(origin, digest));
                }
                Err(why) => made.left_out.push(LeftOut::new(origin, why)),
            }
        }
        Ok(made)
    }
}

/// Requests one page after another.
async fn pages(connection: &Connection, settings: &Settings) -> Result<ToolList, McpFault> {
    let end = settings.clock.monotonic().saturating_add(settings.start_timeout);
    let invalid = |why: String| Err(McpFault::Unreadable(why));
    let mut list = ToolList { entries: Vec::new(), warnings: Vec::new() };
    let (mut names, mut twice) = (BTreeSet::new(), BTreeSet::new());
    let mut cursors = BTreeSet::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let over = async {
            settings.clock.sleep(end.saturating_sub(settings.clock.monotonic())).await;
            settings.start_timeout
        };
        let page = match connection.list(cursor, over).await {
            // A server without tools need not know the request.
            Err(McpFault::Protocol { code: -32601, .. }) if list.entries.is_empty() => {
                return Ok(list);
            }
            page => page?,
        };
        let fields: BTreeMap<String, &RawValue> =
            serde_json::from_str(page.written.get()).unwrap_or_default();
        // Some servers write `null` for an empty list, or nothing.
        let listed = fields.get("tools").map_or("null", |listed| listed.get());
        let Ok(listed) = serde_json::from_str::<Option<Vec<&RawValue>>>(listed) else {
            return invalid("a page has no `tools`".to_owned());
        };
        let listed = listed.unwrap_or_default();
        let (is_empty, known) = (listed.is_empty(), list.entries.len());
        for tool in listed {
            let entry = entry(tool, page.accepted.as_ref());
            let is_new = entry.origin.is_empty() || names.insert(entry.origin.clone());
            if is_new {
                list.entries.push(entry);
            } else if twice.insert(entry.origin.clone()) {
                let name = sanitize_name(&entry.origin);
                list.warnings.push(format!("tool `{name}` is listed twice; the first is taken"));
            }
        }
        if list.entries.len() > MAX_TOOLS {
            return invalid(format!("there are more than {MAX_TOOLS}"));
        }
        let next = match fields.get("nextCursor").map(|next| serde_json::from_str(next.get())) {
            Some(Ok(Value::String(next))) => next,
            Some(Ok(Value::Number(next))) => next.to_string(),
            None | Some(Ok(Value::Null)) => return Ok(list),
            Some(_) => {
                list.warnings.push(
                    "the cursor of a page of its tools is no text; no further one is read"
                        .to_owned(),
                );
                return Ok(list);
            }
        };
        // A server that repeats its pages has listed all its tools.
        if !is_empty && list.entries.len() == known {
            list.warnings
                .push("a page of its tools brings nothing new; no further one is read".to_owned());
            return Ok(list);
        }
        if next.len() > MAX_CURSOR_BYTES {
            return invalid(format!("a cursor has more than {MAX_CURSOR_BYTES} bytes"));
        }
        if !cursors.insert(next.clone()) {
            list.warnings.push(
                "a page of its tools leads back to itself; no further one is read".to_owned(),
            );
            return Ok(list);
        }
        cursor = Some(next);
    }
    invalid(format!("there are more than {MAX_PAGES} pages"))
}

/// Parses one tool of a page. A tool that cannot be read does not affect the others.
fn entry(written: &RawValue, accepted: Option<&BTreeSet<String>>) -> ToolListEntry {
    let fields: BTreeMap<String, &RawValue> =
        serde_json::from_str(written.get()).unwrap_or_default();
    let name = fields.get("name").map(|name| serde_json::from_str::<String>(name.get()));
    let origin = name.and_then(Result::ok).unwrap_or_default();
    let said = if written.get().len() > MAX_TOOL_BYTES {
        Err(format!("what is said of it has more than {MAX_TOOL_BYTES} bytes"))
    } else {
        // The result does not depend on the parser features that an application enables.
        let read = JsonText::parse(written.get());
        let read = read.and_then(|_| serde_json::from_str(written.get()));
        read.map_err(|error| format!("what is said of it cannot be read: {error}"))
    };
    let is_refused = said.is_ok() && accepted.is_some_and(|names| !names.contains(&origin));
    let said = if is_refused { Err(BAD_HEADERS.to_owned()) } else { said };
    ToolListEntry { origin, said }
}

/// Builds a tool, or returns the reason that it cannot be used.
fn make(tool: &Value, origin: &str, name: &str, settings: &Settings) -> Result<MadeTool, String> {
    let Value::Object(mut schema) = tool["inputSchema"].clone() else {
        return Err("its schema is no object".to_owned());
    };
    // Arguments are an object; some servers omit the type.
    let kind = schema.entry("type").or_insert_with(|| "object".into());
    if kind != "object" {
        return Err(format!("its schema is of type `{kind}`, not `object`"));
    }
    if tool["execution"]["taskSupport"] == "required" {
        return Err(ONLY_AS_TASK.to_owned());
    }
    let schema = Value::Object(schema);
    Schema::new(&schema).map_err(|error| format!("its schema is not valid: {error}"))?;
    let output = Some(&tool["outputSchema"]).filter(|schema| !schema.is_null());
    let compiled = output.map(Schema::new).transpose();
    let compiled = compiled.map_err(|error| format!("its output schema is not valid: {error}"))?;
    let said = [&tool["description"], &tool["title"], &tool["annotations"]["title"]];
    let description = said.iter().find_map(|text| text.as_str()).unwrap_or_default();
    let mut spec = ToolSpec::new(name, description, schema)
        .origin(origin)
        .capability(&settings.capability)
        .timeout(settings.max_timeout.saturating_add(GRACE));
    spec.idempotent = settings.is_idempotent(origin);
    spec.exploratory = settings.is_read_only(origin);
    // A read-only call can always be repeated.
    spec.idempotent |= spec.exploratory;
    spec.approval = settings.needs_approval(origin);
    if let Some(output) = output {
        spec = spec.output_schema(output.clone());
    }
    Ok(MadeTool { spec, origin: origin.into(), output: compiled })
}

/// Returns the digest of a tool's description, independent of the order of its fields.
fn digest(tool: &Value) -> String {
    let said = json!({
        "name": tool["name"],
        "description": tool["description"],
        "inputSchema": tool["inputSchema"],
        "outputSchema": tool["outputSchema"],
    });
    let mut digest = String::with_capacity(64);
    push_hex(&mut digest, &Sha256::digest(sort_fields(&said).to_string()));
    digest
}

/// Sorts the fields of objects, because serde_json may keep their order.
fn sort_fields(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort_unstable();
            let sorted = names.into_iter().map(|name| (name.clone(), sort_fields(&fields[name])));
            Value::Object(sorted.collect::<Map<_, _>>())
        }
        Value::Array(values) => values.iter().map(sort_fields).collect(),
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: Q6
    #[test]
    fn digests_are_of_what_is_said() {
        let tool = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let one =
            tool(r#"{"name": "a", "inputSchema": {"type": "object", "x": {"b": 1, "a": [2]}}}"#);
        let same =
            tool(r#"{"inputSchema": {"x": {"a": [2], "b": 1}, "type": "object"}, "name": "a"}"#);
        let hinted = tool(
            r#"{"name": "a", "annotations": {"readOnlyHint": true}, "inputSchema": {"type": "object", "x": {"b": 1, "a": [2]}}}"#,
        );
        let other =
            tool(r#"{"name": "a", "inputSchema": {"type": "object", "x": {"b": 1, "a": [3]}}}"#);
        assert_eq!(digest(&one).len(), 64);
        assert_eq!(digest(&one), digest(&same));
        assert_eq!(digest(&one), digest(&hinted));
        assert_ne!(digest(&one), digest(&other));
    }
}
