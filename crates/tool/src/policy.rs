//! What tools may do: nothing that was not granted.

use std::fmt;

use glob::{MatchOptions, Pattern};
use thiserror::Error;

/// The capabilities an agent's tools may use.
///
/// A grant is a capability, such as `process:spawn`, or a pattern over them: in
/// `fs:read:/data/**`, `*` stands for anything but `/`, and `/**` for the directory and everything
/// below it. A grant without a last part covers all of it: `fs:read` grants `fs:read:/etc/hosts`.
#[derive(Clone, Default)]
pub struct Grants(Box<[Grant]>);

#[derive(Clone)]
struct Grant {
    text: String,
    pattern: Pattern,
}

impl Grants {
    /// Grants nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads grants.
    ///
    /// # Errors
    ///
    /// [`PatternError`], when one is no capability or no pattern.
    pub fn parse<T: AsRef<str>>(grants: impl IntoIterator<Item = T>) -> Result<Self, PatternError> {
        let grants = grants.into_iter().map(|grant| {
            let text = grant.as_ref().to_owned();
            if text.trim() != text || text.is_empty() {
                return Err(PatternError {
                    pattern: text,
                    why: "a capability has the form `fs:read`",
                });
            }
            match Pattern::new(&text) {
                Ok(pattern) => Ok(Grant { text, pattern }),
                Err(error) => Err(PatternError { pattern: text, why: error.msg }),
            }
        });
        grants.collect::<Result<_, _>>().map(Self)
    }

    /// Is this capability granted?
    #[must_use]
    pub fn allow(&self, capability: &str) -> bool {
        self.0.iter().any(|grant| grant.covers(capability))
    }
}

impl Grant {
    fn covers(&self, capability: &str) -> bool {
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: false,
        };
        if self.pattern.matches_with(capability, options) {
            return true;
        }
        let below = |whole: &str, sign| {
            capability.strip_prefix(whole).is_some_and(|rest| rest.starts_with(sign))
        };
        // `fs:read` covers `fs:read:…`; `…/dir/**` covers `…/dir` itself.
        below(&self.text, ':') || self.text.strip_suffix("/**").is_some_and(|dir| dir == capability)
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|grant| &grant.text)).finish()
    }
}

/// Says that a grant cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("grant `{pattern}` is not valid: {why}")]
pub struct PatternError {
    pattern: String,
    why: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: Y1
    #[test]
    fn grants_cover_what_they_say_and_nothing_else() {
        #[track_caller]
        fn check(grant: &str, capability: &str, allowed: bool) {
            assert_eq!(
                Grants::parse([grant]).unwrap().allow(capability),
                allowed,
                "{grant} {capability}"
            );
        }
        check("process:spawn", "process:spawn", true);
        check("process:spawn", "process:spawner", false);
        check("process", "process:spawn", true);
        check("fs:read:/data/**", "fs:read:/data/a/b.csv", true);
        check("fs:read:/data/**", "fs:read:/data", true);
        check("fs:read:/data/**", "fs:read:/database/x", false);
        check("fs:read:/data/**", "fs:write:/data/a", false);
        check("fs:read:/data/*.csv", "fs:read:/data/a.csv", true);
        check("fs:read:/data/*.csv", "fs:read:/data/a/b.csv", false);
        check("fs:read:/data/**", "fs:read", false);
        assert!(!Grants::none().allow("fs:read"));
    }

    #[test]
    fn a_malformed_grant_is_named() {
        let error = Grants::parse(["fs:read:/a/***"]).unwrap_err();
        assert!(error.to_string().contains("`fs:read:/a/***`"), "{error}");
        assert!(Grants::parse([" fs"]).is_err());
    }
}
