use std::collections::BTreeMap;
use std::path::PathBuf;

/// A program that does an operator's work in a process of its own.
///
/// It reads one line of JSON from its standard input, and prints one as the last line of its output: `{"output": …}`,
/// or `{"error": {"code": "…", "message": "…"}}`. Its standard error is read for reasons only.
///
/// The line that it reads has the task's `input`, its `images` and `output_schema` if there are any, and its `context`:
/// `attempt` and `depth`, and if they are set `session`, `run`, `parent`, `root`, `deadline` (RFC 3339), `labels`, and
/// as `allowance` the part of its caller's budget that it may use:
///
/// ```json
/// {"input": "sweep", "context": {"attempt": 1, "depth": 1, "session": "s-1", "labels": {"team": "ops"},
///  "deadline": "2026-11-25T08:00:00Z", "allowance": {"model_calls": 5}}}
/// ```
///
/// It is ended at its deadline, and by the signal `cancel`. If it [takes signals](Self::takes_signals), each other one is
/// a further line, `{"signal": {"name": "…", "data": …}}`, and its input stays open until it ends; otherwise its input
/// ends behind the task. It has its task before it begins; a task that a pipe does not take whole, which is more than a
/// MiB for most users, starts no program that takes signals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorProgram {
    /// Its file, or a name that is looked for in `PATH` of the variables.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The folder in which it runs.
    pub folder: PathBuf,
    /// All that it sees of the environment.
    pub variables: BTreeMap<String, String>,
    /// Whether it reads signals from its standard input.
    pub takes_signals: bool,
}

impl OperatorProgram {
    /// Describes a program.
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

    /// Declares that it reads signals from its standard input.
    #[must_use]
    pub const fn takes_signals(mut self) -> Self {
        self.takes_signals = true;
        self
    }
}
