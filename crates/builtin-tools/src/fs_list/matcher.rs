use std::path::Path;

use backstop_tool::ToolError;
use glob::{MatchOptions, Pattern};

/// Which entries are wanted.
pub(super) struct Matcher {
    pattern: Pattern,
    /// Is it held against the path below the folder, or against the name?
    is_of_path: bool,
}

impl Matcher {
    pub(super) fn new(pattern: &str) -> Result<Self, ToolError> {
        let is_of_path = pattern.contains('/');
        let pattern = Pattern::new(pattern.trim_start_matches("./"))
            .map_err(|error| ToolError::InvalidInput(format!("pattern does not parse: {error}")))?;
        Ok(Self { pattern, is_of_path })
    }

    /// Is an entry wanted that lies there below the folder?
    pub(super) fn takes(&self, below: &Path) -> bool {
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: false,
        };
        let held = match below.file_name() {
            Some(name) if !self.is_of_path => Path::new(name),
            _ => below,
        };
        self.pattern.matches_path_with(held, options)
    }
}
