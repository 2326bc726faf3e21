//! `cargo xtask errors`: `docs/errors.md`, written from the catalogue of codes.

use std::fmt::Write as _;
use std::path::Path;

use layer0::code::{CATALOGUE, Entry};

use crate::error::XtaskError;
use crate::page;

const PAGE: &str = "docs/errors.md";

const INTRO: &str = "\
<!-- Written by `cargo xtask errors` from crates/layer0/src/code.rs; change it there. -->

# Errors

Every way to fail or to stop has a code: a stable name that is printed, logged and matched on. Not
every code ends a run: a tool's failure goes to the model, a memory's is noted and passed over. The
message and the chain of causes beside the code say what went wrong this time.
";

/// Writes the page.
///
/// # Errors
///
/// [`XtaskError::File`] when it cannot be written.
pub(crate) fn write(root: &Path) -> Result<(), XtaskError> {
    page::write(root, PAGE, &text(CATALOGUE))
}

/// Compares the page with the catalogue and changes nothing.
///
/// # Errors
///
/// [`XtaskError::PageStale`] when they differ, [`XtaskError::File`] when the page cannot be read.
pub(crate) fn check(root: &Path) -> Result<(), XtaskError> {
    page::check(root, PAGE, "cargo xtask errors", &text(CATALOGUE))
}

/// Lays the catalogue out as Markdown: one heading per family, one row per code.
fn text(catalogue: &[Entry]) -> String {
    let mut page = String::from(INTRO);
    for family in catalogue.chunk_by(|a, b| family(a) == family(b)) {
        let name = family.first().map_or("", self::family);
        let _infallible = write!(
            page,
            "\n## {name}\n\n| code | what happened | what to do |\n| --- | --- | --- |\n"
        );
        for Entry { code, meaning, advice } in family {
            let _infallible = writeln!(page, "| `{code}` | {} | {} |", cell(meaning), cell(advice));
        }
    }
    page
}

/// Returns what stands before the dot.
fn family(entry: &Entry) -> &'static str {
    entry.code.split('.').next().unwrap_or(entry.code)
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_errors_md_says_what_the_catalogue_says() {
        if let Err(error) = check(crate::root()) {
            panic!("{error}: {}", error.hint().unwrap_or_default());
        }
    }

    #[test]
    fn a_family_has_one_heading_and_a_row_per_code() {
        let entry = |code| Entry { code, meaning: "It broke | badly.", advice: "Fix it." };
        let page = text(&[entry("a.one"), entry("a.two"), entry("internal")]);
        let tables = page.strip_prefix(INTRO).unwrap();
        assert_eq!(
            tables,
            "\n## a\n\n| code | what happened | what to do |\n| --- | --- | --- |\n\
             | `a.one` | It broke \\| badly. | Fix it. |\n\
             | `a.two` | It broke \\| badly. | Fix it. |\n\
             \n## internal\n\n| code | what happened | what to do |\n| --- | --- | --- |\n\
             | `internal` | It broke \\| badly. | Fix it. |\n"
        );
    }

    #[test]
    fn each_family_of_the_catalogue_stands_together() {
        let mut families: Vec<_> =
            CATALOGUE.chunk_by(|a, b| family(a) == family(b)).map(|f| family(&f[0])).collect();
        let count = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), count, "a family is split in two");
    }
}
