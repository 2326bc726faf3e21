//! Values that are text or a reference to a credential.

use backstop_process::Credential;
use serde::{Deserialize, Deserializer};

/// A text, or a reference to a credential.
///
/// ```
/// use backstop_config::{AgentFile, TextOrCredential};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("agent.toml");
/// std::fs::write(
///     &path,
///     r#"
///     [model]
///     provider = "anthropic"
///     model = "m"
///     headers = { x-team = "blue", x-gateway = "command:pass show gateway" }
///     "#,
/// )?;
/// let headers = AgentFile::read(&path)?.model.headers;
/// assert_eq!(headers["x-team"], TextOrCredential::Text("blue".into()));
/// assert!(headers["x-gateway"].is_credential());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextOrCredential {
    /// A reference: `env:NAME`, `file:PATH` or `command:…`.
    Credential(Credential),
    /// The text itself.
    Text(String),
}

impl TextOrCredential {
    /// Returns whether the value is a credential.
    #[must_use]
    pub const fn is_credential(&self) -> bool {
        matches!(self, Self::Credential(_))
    }
}

impl<'de> Deserialize<'de> for TextOrCredential {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if let Ok(credential) = Credential::parse(&text) {
            return Ok(Self::Credential(credential));
        }
        let unnamed = [("command:", "a command line"), ("env:", "a variable"), ("file:", "a file")];
        match unnamed.iter().find(|(kind, _)| text.starts_with(kind)) {
            Some((kind, what)) => {
                Err(serde::de::Error::custom(format!("must name {what} behind `{kind}`")))
            }
            None => Ok(Self::Text(text)),
        }
    }
}
