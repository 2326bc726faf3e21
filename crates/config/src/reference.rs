//! Values that may stand elsewhere than in the file.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use crate::ConfigError;
use crate::read::read_bytes;

/// The most bytes of a file that holds a credential.
const MAX_BYTES: usize = 64 * 1024;

/// A value, or where a credential is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reference {
    /// In this variable of the environment: `env:NAME`.
    Env(String),
    /// In this file, below the agent file's folder: `file:PATH`.
    File(PathBuf),
    /// The value itself.
    Literal(String),
}

impl Reference {
    /// Returns the value; white space around a credential is dropped.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], naming the file at `path`, when the credential is not there or empty. It never
    /// shows the value.
    pub fn read(&self, path: &Path, folder: &Path) -> Result<String, ConfigError> {
        let (value, place) = match self {
            Self::Literal(value) => return Ok(value.clone()),
            Self::Env(name) => {
                let place = format!("environment variable `{name}`");
                let value = std::env::var(name).map_err(|error| {
                    let why = match error {
                        std::env::VarError::NotPresent => "is not set",
                        std::env::VarError::NotUnicode(_) => "is not UTF-8 text",
                    };
                    ConfigError::new(path, format!("{place} {why}"))
                        .with_hint(format!("run `export {name}=…`"))
                })?;
                (value, place)
            }
            Self::File(file) => {
                let file = folder.join(file);
                let text = String::from_utf8(read_bytes(&file, MAX_BYTES)?).map_err(|error| {
                    ConfigError::new(&file, "is not UTF-8 text").with_source(error.utf8_error())
                })?;
                (text, format!("file `{}`", file.display()))
            }
        };
        match value.trim() {
            "" => Err(ConfigError::new(path, format!("{place} holds no credential"))),
            value => Ok(value.to_owned()),
        }
    }

    /// Is the value a credential?
    #[must_use]
    pub const fn is_credential(&self) -> bool {
        !matches!(self, Self::Literal(_))
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let named = |name: &str, what| match name {
            "" => Err(serde::de::Error::custom(format!("must name {what}"))),
            name => Ok(name.to_owned()),
        };
        if let Some(name) = text.strip_prefix("env:") {
            return named(name, "a variable behind `env:`").map(Self::Env);
        }
        if let Some(file) = text.strip_prefix("file:") {
            return named(file, "a file behind `file:`").map(|file| Self::File(file.into()));
        }
        Ok(Self::Literal(text))
    }
}
