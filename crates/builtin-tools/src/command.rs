use std::borrow::Cow;

use async_trait::async_trait;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::{JsonText, ToolSpec};

use self::program::Program;

mod output;
pub(crate) mod program;
mod started;

/// The variable that holds the data which a person gave with the approval of the call.
const APPROVAL_DATA: &str = "BACKSTOP_APPROVAL_DATA";

/// A tool that is a program of your own.
///
/// The arguments arrive as one line of compact JSON on standard input, their numbers as the model wrote
/// them. Exit status 0 makes standard output the tool's output (as JSON if it is an object or an array,
/// its numbers kept as written; else as text), and the model reads standard error after it, under that
/// name. Anything else makes the call fail with code `exit_<status>` or `signal_<n>`: the whole of standard
/// error is its message, or of standard output if that is empty, and standard output is stored with it. Of an output of more than 8 MiB, the head and the tail are kept, 4 MiB each, with the
/// count of the bytes between them that are left out; it is text, even if it was JSON.
///
/// The program runs in a process group of its own and, on Linux, gets no privileges that this process has
/// not: `sudo` and what else changes the user at its start does not do so.  When the call is given up, or this process dies
/// (even by SIGKILL), the group is killed, and on Linux what the program has started in other groups
/// and sessions too: its descendants, and the processes that bear the variable `BACKSTOP_CALL` it was
/// started with. What the program leaves running when it has ended lives on.
///
/// The data that a person gave with the approval of the call, if any, stands as JSON in the variable
/// `BACKSTOP_APPROVAL_DATA`.
///
/// ```
/// use backstop_builtin_tools::{CommandTool, Program};
/// use layer0::ToolSpec;
/// use serde_json::json;
///
/// let spec = ToolSpec::new("count", "Counts words.", json!({ "type": "object" }));
/// let tool = CommandTool::new(spec, Program::new("wc", ["-w".to_owned()], "/data", Default::default()));
/// # let _ = tool;
/// ```
#[derive(Debug, Clone)]
pub struct CommandTool {
    spec: ToolSpec,
    program: Program,
}

impl CommandTool {
    /// Makes the tool. Walls and credentials are the [program's](Program).
    #[must_use]
    pub const fn new(spec: ToolSpec, program: Program) -> Self {
        Self { spec, program }
    }
}

#[async_trait]
impl Tool for CommandTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let program = match &context.approval_data {
            Some(data) => Cow::Owned(self.program.seeing(APPROVAL_DATA, data.get())),
            None => Cow::Borrowed(&self.program),
        };
        program.run(&format!("{}\n", arguments.text()), context).await
    }
}
