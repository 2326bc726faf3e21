use std::collections::BTreeMap;
use std::path::PathBuf;

/// A program that does an operator's work in a separate process.
///
/// It reads one line of JSON from its standard input, and writes one as the last line of its output: `{"output": …}`,
/// or `{"error": {"code": "…", "message": "…"}}`. Its standard error is only read for reasons of a failure.
///
/// The input line has the task's `input`, its `images` and `output_schema` if there are any, and its `context`:
/// `attempt` and `depth`, and if they are set `session`, `run`, `parent`, `root`, `deadline` (RFC 3339), `labels`, and
/// as `allowance` the part of its caller's budget that it may use:
///
/// ```json
/// {"input": "sweep", "context": {"attempt": 1, "depth": 1, "session": "s-1", "labels": {"team": "ops"},
///  "deadline": "2026-11-25T08:00:00Z", "allowance": {"model_calls": 5}}}
/// ```
///
/// The program is ended at its deadline, and by the signal `cancel`. If it [takes signals](Self::takes_signals), each
/// other signal is a further line, `{"signal": {"name": "…", "data": …}}`, and its input remains open until it ends;
/// otherwise its input ends after the task. The task is complete before the program starts. A program that takes
/// signals is not started if a pipe cannot hold the whole task, which for most users means more than 1 MiB.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorProgram {
    /// The path of the program, or a name to look up in the `PATH` of the variables.
    pub name: String,
    /// The arguments.
    pub arguments: Vec<String>,
    /// The folder in which it runs.
    pub folder: PathBuf,
    /// The whole environment.
    pub variables: BTreeMap<String, String>,
    /// Whether it reads signals from its standard input.
    pub takes_signals: bool,
}

impl OperatorProgram {
    /// Creates a program that takes no signals.
    ///
    /// ```
    /// use layer0::operator::OperatorProgram;
    ///
    /// let program = OperatorProgram::new("python3", ["worker.py".to_owned()], "/srv/app", Default::default());
    /// assert_eq!(program.arguments, ["worker.py"]);
    /// ```
    pub fn new(
        name: impl Into<String>,
        arguments: impl IntoIterator<Item = String>,
        folder: impl Into<PathBuf>,
        variables: BTreeMap<String, String>,
    ) -> Self {
        let (name, folder) = (name.into(), folder.into());
        Self {
            name,
            arguments: arguments.into_iter().collect(),
            folder,
            variables,
            takes_signals: false,
        }
    }

    /// Declares that the program reads signals from its standard input.
    #[must_use]
    pub const fn takes_signals(mut self) -> Self {
        self.takes_signals = true;
        self
    }
}
