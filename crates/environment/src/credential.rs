//! Credentials by reference.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use layer0::error::EnvError;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// The most bytes of a credential.
const MAX_BYTES: usize = 64 * 1024;

/// How long a command may take for it, or a file.
const LONGEST: Duration = Duration::from_secs(30);

/// Where a credential is kept.
///
/// ```
/// use backstop_environment::Credential;
///
/// # fn main() -> Result<(), layer0::error::EnvError> {
/// assert_eq!(Credential::parse("env:API_TOKEN")?, Credential::Env("API_TOKEN".into()));
/// assert_eq!(Credential::parse("file:token.txt")?, Credential::File("token.txt".into()));
/// assert_eq!(Credential::parse("command:pass show api")?, Credential::Command("pass show api".into()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// What this command, run by `sh`, prints: `command:…`.
    Command(String),
    /// In this variable of this process's environment: `env:NAME`.
    Env(String),
    /// In this file: `file:PATH`.
    File(PathBuf),
}

impl Credential {
    /// Reads a reference.
    ///
    /// # Errors
    ///
    /// [`EnvError::CredentialFailed`], when it is none. The text is not in it: it may be the credential itself.
    pub fn parse(text: &str) -> Result<Self, EnvError> {
        match text.split_once(':') {
            Some((_, "")) | None => {}
            Some(("command", command)) => return Ok(Self::Command(command.to_owned())),
            Some(("env", name)) => return Ok(Self::Env(name.to_owned())),
            Some(("file", path)) => return Ok(Self::File(path.into())),
            Some(_) => {}
        }
        let why = "it is named as `env:NAME`, `file:PATH` or `command:…`";
        Err(EnvError::CredentialFailed(why.to_owned()))
    }

    /// Fetches the credential, without the ends of lines behind it. Relative paths are below `folder`, where a
    /// command runs too.
    ///
    /// # Errors
    ///
    /// [`EnvError::CredentialFailed`], naming the place, when it is not there within 30 s, is empty, no text, or
    /// larger than 64 KiB. It never shows the credential, nor what a command has printed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future kills the command.
    pub async fn resolve(&self, folder: &Path) -> Result<Secret, EnvError> {
        let failed = |why: &dyn fmt::Display| EnvError::CredentialFailed(format!("{self}: {why}"));
        let read = async {
            match self {
                Self::Command(command) => run(command, folder).await,
                Self::Env(name) => match std::env::var_os(name) {
                    Some(value) => Ok(value.into_encoded_bytes()),
                    None => Err(io::Error::other("is not set")),
                },
                Self::File(path) => read(tokio_file(&folder.join(path))?).await,
            }
        };
        let read = tokio::select! {
            read = read => read.map_err(|error| failed(&error))?,
            () = SystemClock.sleep(LONGEST) => {
                return Err(failed(&format_args!("it took longer than {} s", LONGEST.as_secs())));
            }
        };
        if read.len() > MAX_BYTES {
            return Err(failed(&format_args!("is larger than {} KiB", MAX_BYTES / 1024)));
        }
        let text = String::from_utf8(read).map_err(|_| failed(&"is not UTF-8 text"))?;
        match text.trim_end_matches(['\r', '\n']) {
            "" => Err(failed(&"is empty")),
            text => Ok(Secret(text.to_owned())),
        }
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => write!(f, "command `{command}`"),
            Self::Env(name) => write!(f, "environment variable `{name}`"),
            Self::File(path) => write!(f, "file `{}`", path.display()),
        }
    }
}

/// A credential. It is not printed, whatever formats it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Shows the credential, to what needs it.
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

/// Opens a file without waiting for the writer of a pipe: that would hold a thread for ever.
fn tokio_file(path: &Path) -> io::Result<impl AsyncRead + Unpin> {
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    Ok(Blocking(std::fs::File::open(path)?))
}

/// A small file of a disk, which is read at once.
struct Blocking(std::fs::File);

impl AsyncRead for Blocking {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let read = io::Read::read(&mut self.0, buffer.initialize_unfilled());
        std::task::Poll::Ready(read.map(|read| buffer.advance(read)))
    }
}

async fn run(command: &str, folder: &Path) -> io::Result<Vec<u8>> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("has no output"))?;
    let read = read(stdout).await?;
    if read.len() > MAX_BYTES {
        return Ok(read);
    }
    let status = child.wait().await?;
    if status.success() { Ok(read) } else { Err(io::Error::other(format!("ended with {status}"))) }
}

async fn read(from: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    // One more than fits tells that it is too large.
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    from.take(most).read_to_end(&mut read).await?;
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "canary-5c1e";

    async fn resolve(text: &str, folder: &Path) -> Result<String, String> {
        let credential = Credential::parse(text).map_err(|error| error.to_string())?;
        match credential.resolve(folder).await {
            Ok(secret) => {
                assert!(!format!("{secret:?}").contains(secret.expose()));
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
        std::fs::write(path.join("token"), format!("{CANARY}\n")).unwrap();
        std::fs::write(path.join("empty"), "\n").unwrap();
        std::fs::write(path.join("large"), "x".repeat(MAX_BYTES + 1)).unwrap();
        std::fs::write(path.join("bytes"), [0xff, 0xfe]).unwrap();
        assert_eq!(resolve("file:token", path).await.unwrap(), CANARY);
        assert_eq!(resolve("command:cat token", path).await.unwrap(), CANARY);
        assert!(resolve("env:PATH", path).await.is_ok());
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
            assert_eq!(resolve(text, path).await.unwrap_err(), why);
        }
        for text in [CANARY, "env:", "other:canary-5c1e"] {
            let error = resolve(text, path).await.unwrap_err();
            assert!(error.contains("`env:NAME`") && !error.contains("5c1e"), "{error}");
        }
    }
}
