//! One error type for applications.

mod categories;
mod convert;

use std::borrow::Cow;
use std::fmt;

use backstop_orchestrator::OperatorNameError;
use backstop_react::PackError;
use layer0::failure::{Chain, Facts, Failure};

pub use categories::{
    ConfigurationError, ExecutionError, InvalidPattern, RegistrationError, ReplayError,
    StorageError,
};

/// Every error of Backstop that an application can get, by category. Each error of the parts converts into it, so that
/// `?` works in `main`.
///
/// It prints its category, and with `{:#}` the whole chain on one line; [`Error::hint`] returns how to fix it. With
/// `{:?}`, as at the end of `main`, it prints chain, code and hint.
///
/// Retry: as the error inside says. Effect: as it says.
#[non_exhaustive]
pub enum Error {
    /// A configuration is invalid.
    ///
    /// Retry: as the error inside says. Effect: as it says.
    Configuration(ConfigurationError),
    /// A requested operation was not carried out.
    ///
    /// Retry: as the error inside says. Effect: as it says.
    Execution(ExecutionError),
    /// A pack cannot be loaded.
    ///
    /// Retry: as the error inside says. Effect: as it says.
    Pack(PackError),
    /// A pattern cannot be parsed.
    ///
    /// Retry: as the error inside says. Effect: as it says.
    Pattern(InvalidPattern),
    /// A part cannot be registered, or is not registered.
    ///
    /// Retry: as the error inside says. Effect: as it says.
    Registration(RegistrationError),
    /// A record does not replay.
    ///
    /// Retry: as the error inside says. Effect: as it says.
    Replay(ReplayError),
    /// A store cannot be opened, read or written.
    ///
    /// Retry: as the error inside says. Effect: as it says.
    Storage(StorageError),
}

impl Error {
    /// Returns the name of the category.
    const fn category(&self) -> &'static str {
        match self {
            Self::Configuration(_) => "configuration",
            Self::Execution(_) => "execution",
            Self::Pack(_) => "pack",
            Self::Pattern(_) => "pattern",
            Self::Registration(_) => "registration",
            Self::Replay(_) => "replay",
            Self::Storage(_) => "storage",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.category())?;
        if f.alternate() {
            write!(f, ": {}", Chain(self.inner()))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#} ({})\n  hint: {}", self.code(), self.hint())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.inner())
    }
}

impl Error {
    /// Returns a [`RegistrationError::BehaviorNotFound`], for code that looks up behaviours by name.
    pub fn behavior_not_found(name: impl Into<String>) -> Self {
        RegistrationError::BehaviorNotFound { name: name.into() }.into()
    }

    /// Returns the code of the failure.
    #[must_use]
    pub fn code(&self) -> &'static str {
        Failure::code(self)
    }

    /// Returns whether a retry can help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        Failure::retry(self).is_retryable()
    }

    /// Returns how to fix it.
    #[must_use]
    pub fn hint(&self) -> String {
        let own = match self {
            Self::Configuration(ConfigurationError::InvalidConfiguration { hint, .. }) => {
                hint.clone()
            }
            Self::Configuration(ConfigurationError::InvalidCursor(_)) => {
                Some("use `start`, `now`, or the text of a cursor that a feed gave".to_owned())
            }
            Self::Configuration(ConfigurationError::InvalidStartKey(_)) => {
                Some("give a key of at most 256 bytes, for a task that can be recorded".to_owned())
            }
            Self::Configuration(ConfigurationError::InvalidStoreUrl(_)) => {
                Some("use `sqlite:PATH`, `sqlite::memory:` or `postgres://…`".to_owned())
            }
            Self::Execution(ExecutionError::ApprovalNotFound(_)) => {
                Some("list what is open; an approval is decided once".to_owned())
            }
            Self::Configuration(ConfigurationError::InvalidImage(_)) => {
                Some("give a PNG, JPEG, GIF or WebP file of at most 20 MiB".to_owned())
            }
            Self::Execution(ExecutionError::Request(error)) => Some(error.hint().to_owned()),
            Self::Registration(RegistrationError::Schema(_)) => {
                Some("give a JSON Schema that a validator takes".to_owned())
            }
            Self::Pack(_) => Some("load each pack once, and rename what clashes".to_owned()),
            Self::Pattern(InvalidPattern::Events(error)) => error.hint().map(ToOwned::to_owned),
            Self::Pattern(InvalidPattern::Grant(_)) => {
                Some("write `kind:operation:pattern`, as in `fs:read:/data/**`".to_owned())
            }
            Self::Registration(RegistrationError::ToolNotFound(missing)) => {
                let nearest = missing.nearest.as_ref();
                let meant = nearest.map(|name| format!("did you mean `{name}`?"));
                Some(meant.unwrap_or_else(|| "add the tool to the agent first".to_owned()))
            }
            Self::Registration(RegistrationError::BehaviorNotFound { .. }) => {
                Some("register the behaviour before it is named".to_owned())
            }
            Self::Registration(RegistrationError::Operator(error)) => match &**error {
                OperatorNameError::Unknown { source, .. } => source.hint().map(Cow::into_owned),
                _ => Some("give every operator a name of its own and valid schemas".to_owned()),
            },
            Self::Registration(RegistrationError::UnknownOperator(error)) => {
                error.hint().map(Cow::into_owned)
            }
            Self::Registration(RegistrationError::Behavior(_) | RegistrationError::Part(_)) => {
                Some("give every part a name of its own and a valid schema".to_owned())
            }
            Self::Registration(RegistrationError::Tool(_)) => {
                Some("give every tool a name of its own and a valid JSON Schema".to_owned())
            }
            Self::Replay(ReplayError::Resume(error)) => error.hint().map(Cow::into_owned),
            Self::Execution(_) | Self::Replay(_) | Self::Storage(_) => None,
        };
        own.unwrap_or_else(|| layer0::failure::hint(self).into_owned())
    }

    /// Returns the error of the category.
    fn inner(&self) -> &(dyn Failure + 'static) {
        match self {
            Self::Configuration(error) => error,
            Self::Execution(error) => error,
            Self::Pack(error) => error,
            Self::Pattern(error) => error,
            Self::Registration(error) => error,
            Self::Replay(error) => error,
            Self::Storage(error) => error,
        }
    }
}

impl Failure for Error {
    fn facts(&self) -> Facts {
        self.inner().facts()
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        self.inner().hint()
    }
}
