//! Permissions of tools; everything that is not granted is denied.

use std::fmt;
use std::sync::Arc;

use glob::{MatchOptions, Pattern};
use thiserror::Error;

use crate::capability::check_capability;
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};

/// The capabilities an agent's tools may use. Clones share them.
///
/// A grant is a capability, such as `process:spawn`, or a pattern over them: in `fs:read:/data/**`, `*` matches
/// anything but `/`, and `/**` matches the directory and everything in it. A grant without a last part covers all its
/// capabilities: `fs:read` grants `fs:read:/etc/hosts`.
///
/// A capability that ends with `/**`, such as the one for a search of a folder, is granted only by a pattern that
/// grants everything in that folder.
#[derive(Clone, Default)]
pub struct Grants(Arc<[GrantPattern]>);

#[derive(Clone)]
struct GrantPattern {
    text: String,
    pattern: Pattern,
    /// The directory of a pattern that ends with `/**`.
    directory: Option<Pattern>,
}

impl Grants {
    /// Returns grants that grant nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Parses grants.
    ///
    /// # Errors
    ///
    /// [`GrantError`] if one is not a capability or not a pattern.
    pub fn parse<T: AsRef<str>>(grants: impl IntoIterator<Item = T>) -> Result<Self, GrantError> {
        let grants = grants.into_iter().map(|grant| {
            let text = grant.as_ref().to_owned();
            if let Err(why) = check_capability(&text) {
                return Err(GrantError { pattern: text, why });
            }
            let directory = text.strip_suffix("/**").map(Pattern::new).transpose();
            match (Pattern::new(&text), directory) {
                (Ok(pattern), Ok(directory)) => Ok(GrantPattern { text, pattern, directory }),
                (Err(error), _) | (_, Err(error)) => {
                    Err(GrantError { pattern: text, why: error.msg.to_owned() })
                }
            }
        });
        grants.collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether a capability is granted.
    #[must_use]
    pub fn allow(&self, capability: &str) -> bool {
        self.0.iter().any(|grant| grant.covers(capability))
    }
}

impl GrantPattern {
    fn covers(&self, capability: &str) -> bool {
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: false,
        };
        let matches = |pattern: &Pattern| pattern.matches_with(capability, options);
        // As text, `/data/**` would match `/data/*` too.
        let needs_any_depth = capability.ends_with("/**");
        let grants_any_depth = self.directory.is_some() || self.text.ends_with("/**/*");
        if matches(&self.pattern) && (grants_any_depth || !needs_any_depth) {
            return true;
        }
        // `…/dir/**` covers `…/dir` itself, and `fs:read` covers `fs:read:…`; after a path, a colon is
        // part of a file's name.
        !needs_any_depth && self.directory.as_ref().is_some_and(matches)
            || !self.text.contains('/')
                && capability.strip_prefix(&self.text).is_some_and(|rest| rest.starts_with(':'))
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|grant| &grant.text)).finish()
    }
}

/// Error for a grant that cannot be parsed.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("grant `{pattern}` is not valid: {why}")]
pub struct GrantError {
    pattern: String,
    why: String,
}

impl Failure for GrantError {
    fn facts(&self) -> Facts {
        Facts::never(code::CONFIG_INVALID, Effect::None)
    }
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
        check("fs:read:/da*/**", "fs:read:/data", true);
        check("fs:read:/data [[]1[]]/**", "fs:read:/data [1]", true);
        check("fs:read:/da[t]a/x", "fs:read:/data/x", true);
        check("fs:read:/**", "fs:read:/", true);
        check("fs:read:/**", "fs:read:/etc/x", true);
        check("fs:read:/*", "fs:read:/x", true);
        check("fs:read:/*", "fs:read:/etc/x", false);
        check("fs:read:/data", "fs:read:/data:x", false);
        check("fs:read", "fs:read:/data:x", true);
        assert!(!Grants::none().allow("fs:read"));
    }

    /// Spec: Y1
    #[test]
    fn any_depth_needs_a_grant_to_any_depth() {
        #[track_caller]
        fn check(grant: &str, capability: &str, allowed: bool) {
            let grants = Grants::parse([grant]).unwrap();
            assert_eq!(grants.allow(capability), allowed, "{grant} {capability}");
        }
        for grant in ["fs", "fs:read", "fs:read:/**", "fs:read:/data/**", "fs:read:/d*/**"] {
            check(grant, "fs:read:/data/**", true);
            check(grant, "fs:read:/data/a/**", true);
        }
        check("fs:read:/data/**/*", "fs:read:/data/**", true);
        check("fs:read:/**", "fs:read:/**", true);
        for grant in
            ["/*", "/*/*", "/data/*", "/data/*/**", "/data", "/data/**/x", "/data/**/*.log"]
        {
            check(&format!("fs:read:{grant}"), "fs:read:/data/**", false);
        }
        check("fs:read:/*/**", "fs:read:/**", false);
    }

    #[test]
    fn a_malformed_grant_is_named() {
        let error = Grants::parse(["fs:read:/a/***"]).unwrap_err();
        assert!(error.to_string().contains("`fs:read:/a/***`"), "{error}");
        assert!(Grants::parse([" fs"]).is_err());
    }
}
