use std::collections::BTreeMap;
use std::path::PathBuf;

/// A program with its arguments, folder and environment.
///
/// With a network rule, the variables of the proxy are set in addition to `variables`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalledProgram {
    /// The path of the program, or a name to look up in the `PATH` of the variables.
    pub name: String,
    /// The arguments.
    pub arguments: Vec<String>,
    /// The folder to run in. It need not be readable for the program.
    pub folder: PathBuf,
    /// The whole environment.
    pub variables: BTreeMap<String, String>,
    /// The standard input.
    pub input: ProgramInput,
}

/// The standard input of a program within walls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramInput {
    /// These bytes, complete before the program starts, then the bytes written to [`Walled::stdin`].
    ///
    /// [`Walled::stdin`]: crate::Walled::stdin
    First(Vec<u8>),
    /// The bytes written to [`Walled::stdin`](crate::Walled::stdin).
    #[default]
    Piped,
    /// These bytes, complete before the program starts, and then the end.
    Whole(Vec<u8>),
}

impl WalledProgram {
    /// Creates a program with piped input.
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
