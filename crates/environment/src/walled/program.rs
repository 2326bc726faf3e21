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
        Self { name, arguments: arguments.into_iter().collect(), folder, variables }
    }
}
