use std::collections::BTreeMap;
use std::path::PathBuf;

/// A program with its arguments, where it runs, and all that it sees of the environment.
///
/// With a network rule, the variables that name a proxy are set beside `variables`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalledProgram {
    /// Its file, or a name that is looked for in `PATH` of the variables.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it runs. The folder need not be among what it reads.
    pub folder: PathBuf,
    /// All that it sees of the environment.
    pub variables: BTreeMap<String, String>,
    /// Its standard input.
    pub input: ProgramInput,
}

/// The standard input of a program within walls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramInput {
    /// These bytes, complete before the program begins, then whatever is written to [`Walled::stdin`].
    ///
    /// [`Walled::stdin`]: crate::Walled::stdin
    First(Vec<u8>),
    /// Whatever is written to [`Walled::stdin`](crate::Walled::stdin).
    #[default]
    Piped,
    /// These bytes, complete before the program begins, and then the end.
    Whole(Vec<u8>),
}

impl WalledProgram {
    /// Describes a program.
    pub fn new(
        name: impl Into<String>,
        arguments: impl IntoIterator<Item = String>,
        folder: impl Into<PathBuf>,
        variables: BTreeMap<String, String>,
    ) -> Self {
        let (name, folder) = (name.into(), folder.into());
        let arguments = arguments.into_iter().collect();
        Self { name, arguments, folder, variables, input: ProgramInput::default() }
    }

    /// Returns the program with this input.
    #[must_use]
    pub fn reading(mut self, input: ProgramInput) -> Self {
        self.input = input;
        self
    }
}
