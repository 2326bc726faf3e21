//! Generated pages of `docs/`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::XtaskError;

/// Writes a page.
///
/// # Errors
///
/// [`XtaskError::File`] if the page cannot be written.
pub(crate) fn write(root: &Path, page: &str, text: &str) -> Result<(), XtaskError> {
    let path = root.join(page);
    let file_error = |source| XtaskError::File { path: path.clone(), source };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(file_error)?;
    }
    fs::write(&path, text).map_err(file_error)?;
    println!("wrote {page}");
    Ok(())
}

/// Compares a page with the output of `command`.
///
/// # Errors
///
/// [`XtaskError::PageStale`] if they differ, [`XtaskError::File`] if the page cannot be read.
pub(crate) fn check(
    root: &Path,
    page: &'static str,
    command: &'static str,
    wanted: &str,
) -> Result<(), XtaskError> {
    match first_difference(&read(&root.join(page))?, wanted) {
        None => Ok(()),
        Some(line) => Err(XtaskError::PageStale { page, line, command }),
    }
}

/// Reads a file.
///
/// # Errors
///
/// [`XtaskError::File`].
pub(crate) fn read(path: &Path) -> Result<String, XtaskError> {
    fs::read_to_string(path).map_err(|source| XtaskError::File { path: path.to_owned(), source })
}

/// Collects the files below a folder, without cargo's target folders.
///
/// # Errors
///
/// [`XtaskError::File`].
pub(crate) fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), XtaskError> {
    let file_error = |source| XtaskError::File { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(file_error)? {
        let path = entry.map_err(file_error)?.path();
        if !path.is_dir() {
            files.push(path);
        } else if !path.ends_with("target") {
            files_below(&path, files)?;
        }
    }
    Ok(())
}

/// Returns the first line, from 1, in which two texts differ.
fn first_difference(found: &str, wanted: &str) -> Option<usize> {
    if found == wanted {
        return None;
    }
    let same = found.lines().zip(wanted.lines()).take_while(|(a, b)| a == b).count();
    Some(same + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_found_where_it_begins() {
        for (found, wanted, line) in [
            ("a\nb\n", "a\nb\n", None),
            ("a\nb\n", "a\nc\n", Some(2)),
            ("a\n", "a\nb\n", Some(2)),
            ("a", "a\n", Some(2)),
        ] {
            assert_eq!(first_difference(found, wanted), line, "{found:?} and {wanted:?}");
        }
    }
}
