//! Credentials by reference.

mod command;

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use layer0::error::EnvError;
use serde::de::{Deserialize, Deserializer, Error};

/// The most bytes of a credential.
const MAX_BYTES: usize = 64 * 1024;
/// The longest time that a command may take.
const LONGEST: Duration = Duration::from_secs(30);

/// A reference to a credential: `env:NAME`, `file:PATH` or `command:…`.
///
/// ```
/// use backstop_process::Credential;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), layer0::error::EnvError> {
/// # #[cfg(unix)] {
/// let token = Credential::parse("command:echo s3cret-token")?.fetch().await?;
/// assert_eq!(token.expose(), "s3cret-token");
/// assert_eq!(format!("{token:?}"), "Secret(…)");
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    place: CredentialSource,
    /// The folder of relative paths and of commands; the current one if `None`.
    folder: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CredentialSource {
    Command(String),
    Env(String),
    File(PathBuf),
    Held(Secret),
}

impl Credential {
    /// Refers to the output of a command line of `sh`.
    pub fn command(line: impl Into<String>) -> Self {
        Self::at(CredentialSource::Command(line.into()))
    }

    /// Refers to a variable of this process's environment.
    pub fn env(name: impl Into<String>) -> Self {
        Self::at(CredentialSource::Env(name.into()))
    }

    /// Refers to a file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::at(CredentialSource::File(path.into()))
    }

    /// Holds a credential that was fetched before.
    #[must_use]
    pub const fn from_secret(secret: Secret) -> Self {
        Self::at(CredentialSource::Held(secret))
    }

    /// Parses a reference.
    ///
    /// # Errors
    ///
    /// [`EnvError::CredentialFailed`], when the text is not a reference. The error does not contain
    /// the text, which may be the credential itself.
    pub fn parse(text: &str) -> Result<Self, EnvError> {
        match text.split_once(':').map(|(kind, place)| (kind, place.trim())) {
            Some((_, "")) | None => {}
            Some(("command", line)) => return Ok(Self::command(line)),
            Some(("env", name)) => return Ok(Self::env(name)),
            Some(("file", path)) => return Ok(Self::file(path)),
            Some(_) => {}
        }
        Err(EnvError::CredentialFailed(UNKNOWN.to_owned()))
    }

    /// Sets the folder of relative paths and of commands, unless it is already set.
    #[must_use]
    pub fn below(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder.get_or_insert_with(|| folder.into());
        self
    }

    /// Returns the name of the variable, if it refers to one.
    #[must_use]
    pub fn variable(&self) -> Option<&str> {
        match &self.place {
            CredentialSource::Env(name) => Some(name),
            _ => None,
        }
    }

    /// Fetches the credential, without the white space around it.
    ///
    /// # Errors
    ///
    /// [`EnvError::CredentialFailed`], naming the place, when the credential is missing, empty, no
    /// text or larger than 64 KiB, or when a command fails or takes longer than 30 s. It never
    /// shows the credential, nor the output of a command.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future kills the command, and the processes that it started.
    pub async fn fetch(&self) -> Result<Secret, EnvError> {
        self.fetch_within(LONGEST).await
    }

    /// Returns the credential like [`Credential::fetch`]; `None` if that would run a command.
    ///
    /// # Errors
    ///
    /// As [`Credential::fetch`].
    pub fn read(&self) -> Option<Result<Secret, EnvError>> {
        let read = match &self.place {
            CredentialSource::Command(_) => return None,
            CredentialSource::Env(name) => match std::env::var_os(name) {
                Some(value) => Ok(value.into_encoded_bytes()),
                None => Err(io::Error::other("is not set")),
            },
            CredentialSource::File(path) => read_file(&self.folder().join(path)),
            CredentialSource::Held(secret) => return Some(Ok(secret.clone())),
        };
        Some(self.parse_secret(read))
    }

    async fn fetch_within(&self, longest: Duration) -> Result<Secret, EnvError> {
        let CredentialSource::Command(line) = &self.place else {
            return self.read().unwrap_or_else(|| Err(self.credential_error(&"needs a command")));
        };
        // A real process is waited for, so the time is the system's.
        tokio::select! {
            read = command::run(line, self.folder(), most()) => self.parse_secret(read),
            () = SystemClock.sleep(longest) => {
                Err(self.credential_error(&format_args!("took longer than {} s", longest.as_secs_f32())))
            }
        }
    }

    fn parse_secret(&self, read: io::Result<Vec<u8>>) -> Result<Secret, EnvError> {
        let read = read.map_err(|error| self.credential_error(&error))?;
        if read.len() > MAX_BYTES {
            return Err(
                self.credential_error(&format_args!("is larger than {} KiB", MAX_BYTES / 1024))
            );
        }
        let text =
            String::from_utf8(read).map_err(|_| self.credential_error(&"is not UTF-8 text"))?;
        match text.trim() {
            "" => Err(self.credential_error(&"is empty")),
            text => Ok(Secret::new(text)),
        }
    }

    fn credential_error(&self, why: &dyn fmt::Display) -> EnvError {
        EnvError::CredentialFailed(format!("{self}: {why}"))
    }

    fn folder(&self) -> &Path {
        self.folder.as_deref().unwrap_or_else(|| Path::new("."))
    }

    const fn at(place: CredentialSource) -> Self {
        Self { place, folder: None }
    }
}

/// The message for a text that is not a reference.
const UNKNOWN: &str =
    "must say where a credential is; write `env:NAME`, `file:PATH` or `command:…`";

/// Shows the place of the credential, never the credential.
impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            CredentialSource::Command(line) => write!(f, "command `{line}`"),
            CredentialSource::Env(name) => write!(f, "environment variable `{name}`"),
            CredentialSource::File(path) => write!(f, "file `{}`", path.display()),
            CredentialSource::Held(_) => f.write_str("credential at hand"),
        }
    }
}

impl<'de> Deserialize<'de> for Credential {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // The text may be the credential, and is not repeated.
        Self::parse(&String::deserialize(from)?).map_err(|_| Error::custom(UNKNOWN))
    }
}

/// A credential. It is never printed, whatever formats it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text as a credential.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the credential itself, for code that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Reads a file; opening a pipe would wait for its writer.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let mut read = Vec::new();
    std::fs::File::open(path)?.take(most()).read_to_end(&mut read)?;
    Ok(read)
}

/// One byte more than the maximum, which reveals a credential that is too large.
fn most() -> u64 {
    u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const CANARY: &str = "canary-5c1e";

    async fn fetch(text: &str, folder: &Path) -> Result<String, String> {
        let credential = Credential::parse(text).map_err(|error| error.to_string())?.below(folder);
        match credential.fetch().await {
            Ok(secret) => {
                let held = Credential::from_secret(secret.clone());
                assert!(!format!("{secret:?} {held:?} {held}").contains(secret.expose()));
                Ok(secret.expose().to_owned())
            }
            Err(error) => {
                assert!(!format!("{error:?} {error}").contains("5c1e"), "{error}");
                Err(error.what().into_owned())
            }
        }
    }

    /// Spec: N1, E10
    #[tokio::test]
    async fn credentials_are_fetched_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join("token"), format!(" {CANARY}\n")).unwrap();
        std::fs::write(path.join("empty"), " \n").unwrap();
        std::fs::write(path.join("large"), "x".repeat(MAX_BYTES + 1)).unwrap();
        std::fs::write(path.join("bytes"), [0xff, 0xfe]).unwrap();
        assert_eq!(fetch("file:token", path).await.unwrap(), CANARY);
        assert_eq!(fetch("command:cat token", path).await.unwrap(), CANARY);
        assert!(fetch("env:PATH", path).await.is_ok());
        for (text, why) in [
            ("file:none", "file `none`: No such file or directory (os error 2)"),
            ("file:.", "file `.`: is not a regular file"),
            ("file:empty", "file `empty`: is empty"),
            ("file:large", "file `large`: is larger than 64 KiB"),
            ("file:bytes", "file `bytes`: is not UTF-8 text"),
            ("env:BACKSTOP_NOT_SET", "environment variable `BACKSTOP_NOT_SET`: is not set"),
            ("command:cat token; exit 3", "command `cat token; exit 3`: ended with exit status: 3"),
            ("command:yes", "command `yes`: is larger than 64 KiB"),
        ] {
            assert_eq!(fetch(text, path).await.unwrap_err(), why);
        }
        for text in [CANARY, "env:", "env: ", "other:canary-5c1e"] {
            let error = fetch(text, path).await.unwrap_err();
            assert!(error.contains("`env:NAME`") && !error.contains("5c1e"), "{error}");
        }
    }

    #[test]
    fn reading_runs_no_command() {
        assert!(Credential::command("touch /tmp/never").read().is_none());
        assert!(Credential::env("PATH").read().unwrap().is_ok());
        let held = Credential::from_secret(Secret::new(CANARY));
        assert_eq!(held.read().unwrap().unwrap().expose(), CANARY);
    }

    #[test]
    fn the_first_folder_counts() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), CANARY).unwrap();
        let token = Credential::file("token").below(folder.path()).below("/elsewhere");
        assert_eq!(token.read().unwrap().unwrap().expose(), CANARY);
    }

    /// Spec: N1. What takes too long is killed, with what it has started.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn slow_command_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let line = "sleep 600 & echo $! > child; wait";
        let slow = Credential::command(line).below(folder.path());
        let child = folder.path().join("child");
        let id = || std::fs::read_to_string(&child).ok().filter(|id| id.ends_with('\n'));
        let mut fetch = Box::pin(slow.fetch_within(Duration::from_secs(600)));
        let id = loop {
            tokio::select! {
                biased;
                fetched = &mut fetch => panic!("{fetched:?}"),
                () = tokio::task::yield_now() => if let Some(id) = id() { break id },
            }
        };
        drop(fetch);
        let error = slow.fetch_within(Duration::ZERO).await.unwrap_err();
        assert_eq!(error.what(), format!("command `{line}`: took longer than 0 s"));
        let is_gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.trim()));
            // Its new parent may not have waited for it yet.
            stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
        };
        let patience = SystemClock.monotonic() + Duration::from_secs(20);
        while !is_gone() {
            assert!(SystemClock.monotonic() < patience, "the child of a dropped command lives");
            tokio::task::yield_now().await;
        }
    }
}
