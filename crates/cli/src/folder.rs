//! Folders of files, and their form in a record.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Returns the folder of a file.
pub(crate) fn parent_folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Returns the name of a folder for a record: text, or for a name that is not UTF-8, its displayed text and its bytes.
pub(crate) fn recordable(folder: &Path) -> Value {
    match (folder.to_str(), bytes(folder)) {
        (None, Some(bytes)) => json!({ "shown": folder.display().to_string(), "bytes": bytes }),
        _ => json!(folder.display().to_string()),
    }
}

/// Returns the folder of a recorded name.
pub(crate) fn read_recorded(name: &Value) -> Option<PathBuf> {
    let shown = name.as_str().or_else(|| name["shown"].as_str());
    let bytes: Option<Vec<u8>> = serde_json::from_value(name["bytes"].clone()).ok();
    bytes.and_then(from_bytes).or_else(|| shown.map(PathBuf::from))
}

#[cfg(unix)]
fn bytes(folder: &Path) -> Option<&[u8]> {
    use std::os::unix::ffi::OsStrExt;
    Some(folder.as_os_str().as_bytes())
}

#[cfg(not(unix))]
fn bytes(_: &Path) -> Option<&[u8]> {
    None
}

#[cfg(unix)]
fn from_bytes(bytes: Vec<u8>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    Some(std::ffi::OsString::from_vec(bytes).into())
}

#[cfg(not(unix))]
fn from_bytes(_: Vec<u8>) -> Option<PathBuf> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn recorded_folder_keeps_its_bytes() {
        for name in [&b"/data/a"[..], b"/data/\xffd", "/d\u{e4}".as_bytes()] {
            let folder = Path::new(OsStr::from_bytes(name));
            assert_eq!(read_recorded(&recordable(folder)).as_deref(), Some(folder));
        }
        assert_eq!(recordable(Path::new("/data/a")), "/data/a");
        assert_eq!(read_recorded(&Value::Null), None);
    }
}
