use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use backstop_environment::{Credential, Walls};
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::{JsonText, ToolSpec};
use serde_json::json;

use crate::command::program::Program;

/// `shell`: runs a command line with `sh -c`. A call needs `process:spawn`, and a person has to agree
/// to it.
///
/// Standard input is empty. Outputs, exit status and processes are as those of a
/// [`CommandTool`](crate::CommandTool); standard output is kept beside an error, too.
///
/// ```
/// use backstop_builtin_tools::Shell;
/// use backstop_tool::Tool;
///
/// let shell = Shell::new("/data", Default::default());
/// assert!(shell.spec().approval);
/// assert_eq!(shell.spec().capabilities, ["process:spawn"]);
/// ```
#[derive(Debug, Clone)]
pub struct Shell {
    spec: ToolSpec,
    base: PathBuf,
    variables: BTreeMap<String, String>,
    walls: Option<Walls>,
    credentials: Vec<(String, Credential)>,
}

impl Shell {
    /// Makes the tool. Commands run in `base` unless they ask for a folder, relative to it, and see
    /// only `variables` as their environment, and `BACKSTOP_CALL`, by which their processes are known.
    pub fn new(base: impl Into<PathBuf>, variables: BTreeMap<String, String>) -> Self {
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
            standard output; where it fails, its exit status and standard error.";
        let spec =
            ToolSpec::new("shell", description, schema).capability("process:spawn").approval();
        Self { spec, base: base.into(), variables, walls: None, credentials: Vec::new() }
    }

    /// Runs the program within walls.
    #[must_use]
    pub fn within(mut self, walls: Walls) -> Self {
        self.walls = Some(walls);
        self
    }

    /// Gives the program a credential in a variable; it is fetched at each call, and taken out of what is answered.
    #[must_use]
    pub fn credential(mut self, variable: impl Into<String>, credential: Credential) -> Self {
        self.credentials.push((variable.into(), credential));
        self
    }

    /// Lets calls run without a person who agrees to them.
    #[must_use]
    pub fn without_approval(mut self) -> Self {
        self.spec.approval = false;
        self
    }

    /// Limits how long one call may take, instead of the agent's limit.
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
        let folder = self.base.join(asked);
        if !folder.is_dir() {
            return Err(ToolError::InvalidInput(format!("cwd `{asked}` is not a folder")));
        }
        let line = arguments["command"].as_str().unwrap_or_default();
        let program = Program {
            name: "sh".to_owned(),
            arguments: vec!["-c".to_owned(), line.to_owned()],
            folder,
            variables: self.variables.clone(),
            keeps_output: true,
            walls: self.walls.clone(),
            credentials: self.credentials.clone(),
        };
        program.run("", context).await
    }
}
