//! Paths as written by the model, as checked by the policy, and as opened.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use backstop_tool::{Arguments, ToolContext, ToolError, real_path};

/// Returns the `path` argument as the model wrote it.
pub(crate) fn path_argument(arguments: &Arguments) -> &str {
    arguments["path"].as_str().unwrap_or(".")
}

/// Returns the target of the `path` argument.
pub(crate) fn resolve(base: &Path, arguments: &Arguments) -> PathBuf {
    real_path(&base.join(path_argument(arguments)))
}

/// Opens a file for reading, only if it is a regular file and still the one that was checked: links may have changed
/// since.
pub(crate) fn open_judged(
    path: &Path,
    judged: impl FnOnce(&Path) -> bool,
) -> Result<(File, Metadata), OpenFailure> {
    // Checked before opening, because opening a pipe waits for its other end.
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

/// The reason that a file was not opened.
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

/// Returns the actual path of an open file.
#[cfg(target_os = "linux")]
pub(crate) fn opened_path(file: &File, _: &Path) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Returns the actual path of an open file, as far as its name still leads to it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn opened_path(_: &File, path: &Path) -> io::Result<PathBuf> {
    std::fs::canonicalize(path)
}

/// Returns a path that leads to an open folder, regardless of its current name.
#[cfg(target_os = "linux")]
pub(crate) fn by_descriptor(folder: &File, _: &Path) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

/// Returns the path of an open folder: there is no other way to its contents.
#[cfg(not(target_os = "linux"))]
pub(crate) fn by_descriptor(_: &File, path: &Path) -> PathBuf {
    path.to_owned()
}

/// Returns the path with another beginning.
pub(crate) fn replace_prefix(path: &Path, from: &Path, to: &Path) -> PathBuf {
    match path.strip_prefix(from) {
        Ok(below) if below.as_os_str().is_empty() => to.to_owned(),
        Ok(below) => to.join(below),
        Err(_) => path.to_owned(),
    }
}

/// Returns whether this capability was granted to the call.
pub(crate) fn granted(context: &ToolContext, capability: &str) -> bool {
    context.granted.iter().any(|granted| granted == capability)
}

/// Formats a path, relative to `base` if it is below it.
pub(crate) fn display_path(base: &Path, path: &Path) -> String {
    path.strip_prefix(real_path(base)).unwrap_or(path).display().to_string()
}
