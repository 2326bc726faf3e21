use std::time::Duration;

use async_trait::async_trait;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::{JsonText, ToolSpec};
use serde_json::json;

use crate::command::program::Program;

/// `shell`: runs a command line with `sh -c`. A call needs `process:spawn` and an approval.
///
/// Standard input is empty. Outputs, exit status and processes are handled as by a [`CommandTool`](crate::CommandTool).
///
/// ```
/// use backstop_builtin_tools::{Program, Shell};
/// use backstop_tool::Tool;
///
/// let shell = Shell::new(Program::shell("/data", Default::default()));
/// assert!(shell.spec().approval);
/// assert_eq!(shell.spec().capabilities, ["process:spawn"]);
/// ```
#[derive(Debug, Clone)]
pub struct Shell {
    spec: ToolSpec,
    /// The program without its last argument, which is the command line.
    program: Program,
}

impl Shell {
    /// Creates the tool for a shell, which receives each command line as one more argument ([`Program::shell`]).
    /// Commands run in its folder, or in a requested one relative to it, with its variables, walls and credentials.
    #[must_use]
    pub fn new(shell: Program) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "minLength": 1, "description": "A command line for sh -c."},
                "cwd": {"type": "string", "description": "The folder to run it in."},
            },
            "required": ["command"],
            "additionalProperties": false,
        });
        let description = "Run a command line with sh -c, without standard input. Returns what it writes to \
            standard output, then standard error; where it fails, its exit status too.";
        let spec =
            ToolSpec::new("shell", description, schema).capability("process:spawn").approval();
        Self { spec, program: shell }
    }

    /// Lets calls run without an approval.
    #[must_use]
    pub fn without_approval(mut self) -> Self {
        self.spec.approval = false;
        self
    }

    /// Limits the time of one call, instead of the agent's limit.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.spec.timeout = Some(timeout);
        self
    }
}

#[async_trait]
impl Tool for Shell {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let asked = arguments["cwd"].as_str().unwrap_or(".");
        let folder = self.program.folder.join(asked);
        if !folder.is_dir() {
            return Err(ToolError::InvalidInput(format!("cwd `{asked}` is not a folder")));
        }
        let mut program = Program { folder, ..self.program.clone() };
        program.arguments.extend(arguments["command"].as_str().map(ToOwned::to_owned));
        program.run("", context).await
    }
}
