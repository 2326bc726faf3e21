use std::borrow::Cow;

use async_trait::async_trait;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::{JsonText, ToolSpec};

use self::program::Program;

mod output;
pub(crate) mod program;
mod started;

/// The variable with the data that a person gave with the approval of the call.
const APPROVAL_DATA: &str = "BACKSTOP_APPROVAL_DATA";

/// A tool that runs a program.
///
/// The arguments are one line of compact JSON on standard input, with the numbers as the model wrote them. With exit
/// status 0, standard output is the tool's output: as JSON if it is an object or an array, with its numbers kept as
/// written, otherwise as text. The model reads standard error after it, under that name. With any other end the call
/// fails with code `exit_<status>` or `signal_<n>`: the message is the whole standard error, or standard output if that
/// is empty, and standard output is stored with it. Of an output of more than 8 MiB, the head and the tail are kept, 4
/// MiB each, with the number of omitted bytes between them; such an output is text, even if it was JSON.
///
/// The program runs in its own process group and, on Linux, cannot gain privileges that this process does not have:
/// `sudo` and other programs that change the user at their start have no such effect. When the call is dropped, or this
/// process dies (even by SIGKILL), the group is killed; on Linux also the processes that the program has started in
/// other groups and sessions: its descendants, and the processes with the variable `BACKSTOP_CALL` that it was started
/// with. Processes that still run after the end of the program are left running.
///
/// The data that a person gave with the approval of the call, if any, is passed as JSON in the variable
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
    /// Creates the tool. Walls and credentials are those of the [program](Program).
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
