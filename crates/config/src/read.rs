//! Size-limited reads of the files that users name.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::string::FromUtf8Error;

use crate::ConfigError;

/// Size limit of a text: a TOML file, an input, instructions. 16 MiB.
pub const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;

/// Reads a file as text, of at most [`MAX_TEXT_BYTES`]. A byte order mark at its beginning is removed.
///
/// # Errors
///
/// [`ConfigError`] with the file if it is not a regular file, is larger, is not UTF-8 or cannot be read.
pub fn read_text(path: &Path) -> Result<String, ConfigError> {
    let bytes = read_bytes(path, MAX_TEXT_BYTES)?;
    decode(bytes).map_err(|error| {
        ConfigError::new(path, "is not UTF-8 text").with_source(error.utf8_error())
    })
}

/// Reads a file of at most `max_bytes`.
///
/// Devices and pipes are refused: they may have no end, or block forever.
///
/// # Errors
///
/// [`ConfigError`] with the file if it is not a regular file, is larger or cannot be read.
pub fn read_bytes(path: &Path, max_bytes: usize) -> Result<Vec<u8>, ConfigError> {
    let failed = |error| ConfigError::new(path, "cannot be read").with_source(error);
    let regular = |metadata: Metadata| match metadata.is_file() {
        true => Ok(()),
        false if metadata.is_dir() => Err(ConfigError::new(path, "is a folder")),
        false => Err(ConfigError::new(path, "is not a regular file")),
    };
    // Checked before opening, because opening a pipe waits for its other end.
    regular(std::fs::metadata(path).map_err(failed)?)?;
    let file = File::open(path).map_err(failed)?;
    regular(file.metadata().map_err(failed)?)?;
    read_all(file, max_bytes).map_err(failed)?.ok_or_else(|| {
        ConfigError::new(path, format!("is larger than {} MiB", max_bytes / (1024 * 1024)))
    })
}

/// Reads text to its end, of at most [`MAX_TEXT_BYTES`]. A byte order mark at its beginning is removed.
///
/// # Errors
///
/// Errors of `source`; [`io::ErrorKind::FileTooLarge`] if there is more, and [`io::ErrorKind::InvalidData`] if it is
/// not UTF-8.
pub fn read_text_from(source: impl Read) -> io::Result<String> {
    let bytes = read_all(source, MAX_TEXT_BYTES)?.ok_or_else(|| {
        let what = format!("there is more than {} MiB of it", MAX_TEXT_BYTES / (1024 * 1024));
        io::Error::new(io::ErrorKind::FileTooLarge, what)
    })?;
    decode(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// Decodes UTF-8 and removes the byte order mark that some editors and shells write first.
fn decode(bytes: Vec<u8>) -> Result<String, FromUtf8Error> {
    let text = String::from_utf8(bytes)?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// Reads to the end; returns `None` if there are more than `max_bytes`.
fn read_all(source: impl Read, max_bytes: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
    source.take(limit).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= max_bytes).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: C1
    #[test]
    fn byte_order_mark_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        for (written, expected) in [
            ("\u{feff}hello", "hello"),
            ("hello", "hello"),
            ("\u{feff}", ""),
            ("\u{feff}\u{feff}x", "\u{feff}x"),
            ("x\u{feff}", "x\u{feff}"),
        ] {
            assert_eq!(read_text_from(written.as_bytes()).unwrap(), expected);
            std::fs::write(&path, written).unwrap();
            assert_eq!(read_text(&path).unwrap(), expected);
        }
    }
}
