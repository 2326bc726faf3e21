//! Arguments of a person in place of the shown ones, for a tool that adds data to its approvals.

use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_config::{ToolKind, ToolTable};
use backstop_event_log::{EventLog, OpenApproval};
use backstop_redact::Redactor;
use backstop_tool::{Grants, ToolContext, Toolset};
use layer0::JsonText;
use layer0::failure::Chain;
use layer0::id::SessionId;

use crate::assemble;
use crate::exit::CliError;
use crate::recorded::RecordedAgentFile;

/// Built-in tool whose approvals are bound to the file that was shown.
const WRITES: &str = "fs_write";
/// Arguments that bind its approvals: the real path, and the digest of the content.
const BOUND_TO: [&str; 2] = ["file", "replaces"];
/// Time limit of the proposal here; the run sets its own for the call.
const PATIENCE: Duration = Duration::from_secs(60);

/// Adds the tool's data to a person's own arguments, such as the diff of a write. A call that was bound to the state of
/// a file stays bound to that state.
///
/// # Errors
///
/// [`CliError`] if the file has changed since it was shown, or the tool refuses the arguments.
pub(crate) async fn renew_arguments(
    log: &dyn EventLog,
    open: &OpenApproval,
    typed: JsonText,
) -> Result<JsonText, CliError> {
    if *open.tool != *WRITES {
        return Ok(typed);
    }
    let shown = open.arguments.value();
    let recorded = RecordedAgentFile::read(log, &open.run, None, None).await.map_err(|error| {
        error.with_hint(
            "what would change cannot be shown; deny the call, so that it is asked again",
        )
    })?;
    let folder = assemble::parent_folder(&recorded.path);
    let refused = |error: &(dyn std::error::Error + 'static)| {
        CliError::usage(format!("other arguments for `{}`: {}", open.tool, Chain(error)))
    };
    let tables = recorded.file.tools.iter();
    // A program of this name, or a tool of a server, adds nothing to its arguments.
    let is_built_in = |table: &&ToolTable| table.kind == ToolKind::Builtin;
    let Some(table) = tables.filter(is_built_in).find(|table| table.name == *open.tool) else {
        return Ok(typed);
    };
    let mut tools = Toolset::new();
    // A tool with memory is only inspected.
    let entries = assemble::entries(&recorded.file, &recorded.path, None, &Redactor::new());
    tools
        .add(assemble::tool(table, &recorded.file, &recorded.path, folder, &entries)?)
        .map_err(|error| refused(&error))?;
    let grants = Grants::parse(recorded.file.agent.grants(folder)).map_err(|it| refused(&it))?;
    let typed_value = typed.value().clone();
    let admitted = tools.admit(&open.tool, typed, &grants).map_err(|error| refused(&error))?;
    let deadline = SystemClock.now().after(PATIENCE);
    let session = SessionId::from("approval");
    let mut context =
        ToolContext::new(open.run.clone(), session, open.id.as_str().into(), deadline);
    context.granted = admitted.needs().clone();
    context.grants = grants;
    let asked = admitted.tool().proposal(&admitted.arguments, &context).await;
    let renewed = asked.map_err(|error| refused(&error))?;
    let renewed = renewed.unwrap_or_else(|| typed_value.clone().into());
    let now = renewed.value();
    // Another spelling of the path may be the same file, and the same path may lead to another file by now.
    let is_same = |key: &str| shown.get(key).is_some() && now.get(key) == shown.get(key);
    let is_changed = BOUND_TO.iter().any(|key| shown.get(key).is_some() && !is_same(key));
    if is_changed && (is_same("file") || is_same("path")) {
        return Err(CliError::usage("the file is not as it was shown")
            .with_hint("deny the call, so that the model looks at it and asks again"));
    }
    Ok(renewed)
}
