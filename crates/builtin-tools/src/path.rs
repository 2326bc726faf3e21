//! Paths as the model writes them, as the policy judges them, and as they are opened.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use backstop_tool::{Arguments, ToolContext, ToolError, real_path};

/// Returns the `path` argument as the model wrote it.
pub(crate) fn asked(arguments: &Arguments) -> &str {
    arguments["path"].as_str().unwrap_or(".")
}

/// Returns where the `path` argument leads.
pub(crate) fn resolve(base: &Path, arguments: &Arguments) -> PathBuf {
    real_path(&base.join(asked(arguments)))
}

/// Opens a file for reading, and only if it is a file and still the one that was judged: links may
/// have changed since.
pub(crate) fn open_judged(
    path: &Path,
    judged: impl FnOnce(&Path) -> bool,
) -> Result<(File, Metadata), OpenFailure> {
    // Asked before opening, because opening a pipe waits for its other end.
    if !std::fs::metadata(path)?.is_file() {
        return Err(OpenFailure::NoFile);
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(OpenFailure::NoFile);
    }
    if !judged(&opened_path(&file, path)?) {
        return Err(OpenFailure::Moved);
    }
    Ok((file, metadata))
}

/// Why a file was not opened.
pub(crate) enum OpenFailure {
    NoFile,
    Moved,
    Io(io::Error),
}

impl From<io::Error> for OpenFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl OpenFailure {
    pub(crate) fn into_tool_error(self, shown: &str) -> ToolError {
        match self {
            Self::NoFile => ToolError::InvalidInput(format!("path `{shown}` is not a file")),
            Self::Moved => ToolError::ExecutionFailed(format!(
                "`{shown}` changed between being judged and being opened"
            )),
            Self::Io(error) => {
                ToolError::InvalidInput(format!("path `{shown}` cannot be read: {error}"))
            }
        }
    }
}

/// Returns the path of what an open file really is.
#[cfg(target_os = "linux")]
pub(crate) fn opened_path(file: &File, _: &Path) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Returns the path of what an open file really is, as far as the name still tells.
#[cfg(not(target_os = "linux"))]
pub(crate) fn opened_path(_: &File, path: &Path) -> io::Result<PathBuf> {
    std::fs::canonicalize(path)
}

/// Returns a path to an open folder that leads there whatever its name leads to now.
#[cfg(target_os = "linux")]
pub(crate) fn by_descriptor(folder: &File, _: &Path) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

/// Returns the path of an open folder: there is no other way to what is in it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn by_descriptor(_: &File, path: &Path) -> PathBuf {
    path.to_owned()
}

/// Was this capability granted to the call?
pub(crate) fn granted(context: &ToolContext, capability: &str) -> bool {
    context.granted.iter().any(|granted| granted == capability)
}

/// Shows a path below `base` without it.
pub(crate) fn shown(base: &Path, path: &Path) -> String {
    path.strip_prefix(real_path(base)).unwrap_or(path).display().to_string()
}
