//! One error type for applications.

mod categories;
mod convert;

use std::borrow::Cow;
use std::fmt;

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

    /// Returns whether another attempt now, with backoff, can help; false once the retries gave up.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        Failure::retry(self).is_retryable()
    }

    /// Returns whether the failure may have passed when the work is begun anew later, also after the retries gave up.
    /// A job queue asks this.
    #[must_use]
    pub fn may_pass_later(&self) -> bool {
        Failure::may_pass_later(self)
    }

    /// Returns how to fix it.
    #[must_use]
    pub fn hint(&self) -> String {
        layer0::failure::hint(self).into_owned()
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
