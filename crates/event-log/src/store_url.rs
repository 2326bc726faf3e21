use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use thiserror::Error;

/// Suffix of the URL of a file that may be on a network file system.
const ON_NETWORK: &str = "?network_fs=1";

/// The location of records.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// An SQLite file.
    Sqlite(PathBuf),
    /// An SQLite file on a network file system, which the user allows with `?network_fs=1`.
    SqliteOnNetwork(PathBuf),
    /// SQLite in memory.
    SqliteMemory,
    /// A PostgreSQL database; the whole URL.
    Postgres(String),
}

/// Error of an invalid store URL, with the valid forms.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid store URL `{0}`: expected `sqlite:PATH`, `sqlite::memory:` or `postgres://…`")]
pub struct InvalidStoreUrl(String);

impl Failure for InvalidStoreUrl {
    fn facts(&self) -> Facts {
        Facts::never(code::INPUT_INVALID, Effect::None)
    }
}

impl StoreUrl {
    /// Resolves a relative path against `folder`.
    #[must_use]
    pub fn below(self, folder: &Path) -> Self {
        match self {
            Self::Sqlite(path) => Self::Sqlite(folder.join(path)),
            Self::SqliteOnNetwork(path) => Self::SqliteOnNetwork(folder.join(path)),
            other => other,
        }
    }
}

impl FromStr for StoreUrl {
    type Err = InvalidStoreUrl;

    fn from_str(url: &str) -> Result<Self, InvalidStoreUrl> {
        if url == "sqlite::memory:" {
            return Ok(Self::SqliteMemory);
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Postgres(url.to_owned()));
        }
        match url.strip_prefix("sqlite:") {
            Some(path) if !path.is_empty() && !path.starts_with("//") && !path.starts_with(':') => {
                match path.strip_suffix(ON_NETWORK) {
                    Some(path) => Ok(Self::SqliteOnNetwork(PathBuf::from(path))),
                    None if has_parameter(path) => Err(InvalidStoreUrl(url.to_owned())),
                    None => Ok(Self::Sqlite(PathBuf::from(path))),
                }
            }
            // A password in an invalid URL must not be shown.
            _ => Err(InvalidStoreUrl(url.split('@').next_back().unwrap_or_default().to_owned())),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::SqliteOnNetwork(path) => write!(f, "sqlite:{}{ON_NETWORK}", path.display()),
            Self::SqliteMemory => f.write_str("sqlite::memory:"),
            Self::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}

/// Returns whether a path ends with a parameter as in a URL, such as a misspelt one.
fn has_parameter(path: &str) -> bool {
    let is_word = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let parameter = path.rsplit_once('?').and_then(|(_, parameter)| parameter.split_once('='));
    parameter.is_some_and(|(name, _)| is_word(name))
}

/// Returns the URL of a server without its password and its parameters, which may contain one.
fn without_password(url: &str) -> String {
    let url = url.split('?').next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return String::new() };
    match rest.rsplit_once('@') {
        Some((user, server)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{server}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: C4
    #[test]
    fn the_accepted_forms_are_accepted_and_named() {
        assert_eq!("sqlite::memory:".parse(), Ok(StoreUrl::SqliteMemory));
        assert_eq!("sqlite:a/b.db".parse(), Ok(StoreUrl::Sqlite("a/b.db".into())));
        let vouched = "sqlite:a/b.db?network_fs=1";
        assert_eq!(vouched.parse(), Ok(StoreUrl::SqliteOnNetwork("a/b.db".into())));
        assert_eq!(
            vouched.parse::<StoreUrl>().unwrap().below(Path::new("/x")).to_string(),
            "sqlite:/x/a/b.db?network_fs=1"
        );
        assert_eq!(
            "sqlite:b.db".parse::<StoreUrl>().unwrap().below(Path::new("/x")).to_string(),
            "sqlite:/x/b.db"
        );
        for (url, shown) in [
            ("postgres://localhost/agents", "postgres://localhost/agents"),
            ("postgres://me:hunter22@db:5433/agents", "postgres://me@db:5433/agents"),
            ("postgresql://me:hunt@er22@db/agents?password=hunter22", "postgresql://me@db/agents"),
        ] {
            let parsed: StoreUrl = url.parse().unwrap();
            assert_eq!((&parsed, &*parsed.to_string()), (&StoreUrl::Postgres(url.into()), shown));
        }
        for url in
            ["", "sqlite:", "sqlite://x", "b.db", "mysql://root:hunter22@x/y", "sqlite::mem:"]
        {
            let error = url.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(error.contains("`sqlite:PATH`") && !error.contains("hunter22"), "{error}");
        }
    }
}
