use std::path::Path;

use backstop_tool::ToolError;
use glob::{MatchOptions, Pattern};

/// Pattern for entries.
pub(super) struct Matcher {
    pattern: Pattern,
    /// Whether it is matched against the path below the folder instead of the name.
    is_of_path: bool,
}

impl Matcher {
    pub(super) fn new(pattern: &str) -> Result<Self, ToolError> {
        let is_of_path = pattern.contains('/');
        let pattern = Pattern::new(pattern.trim_start_matches("./"))
            .map_err(|error| ToolError::InvalidInput(format!("pattern does not parse: {error}")))?;
        Ok(Self { pattern, is_of_path })
    }

    /// Returns whether the entry at this path below the folder matches.
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
