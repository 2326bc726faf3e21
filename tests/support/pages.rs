//! Pages of `docs/` that tests write.

use std::path::Path;

/// Compares a page of `docs/` with what a test found; where `BACKSTOP_WRITE_DOCS` is set, writes it
/// first.
#[track_caller]
pub(crate) fn check(name: &str, found: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::env::var_os("BACKSTOP_WRITE_DOCS").is_some() {
        std::fs::write(&file, found).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(written, found, "docs/{name} is out of date");
}
