use std::collections::BTreeMap;
use std::path::PathBuf;

/// A program that does an operator's work in a process of its own.
///
/// It reads one line of JSON from its standard input, `{"input": …}`, and prints one as the last line of its output:
/// `{"output": …}`, or `{"error": {"code": "…", "message": "…"}}`. What it prints to standard error is read for
/// reasons only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorProgram {
    /// Its file, or a name that is looked for in `PATH` of the variables.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it runs.
    pub folder: PathBuf,
    /// All that it sees of the environment.
    pub variables: BTreeMap<String, String>,
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
        Self { name, arguments: arguments.into_iter().collect(), folder, variables }
    }
}
