//! `cargo xtask errors`: `docs/errors.md`, generated from the catalogue of codes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use layer0::code::{CATALOGUE, CodeEntry};

use crate::error::XtaskError;
use crate::facts::{self, Facts};
use crate::page;

const PAGE: &str = "docs/errors.md";

const INTRO: &str = "\
<!-- Written by `cargo xtask errors` from crates/layer0/src/code.rs and the facts of failures; change it there. -->

# Errors

Every way to fail or to stop has a code: a stable name that is printed, logged and matched on. Not
every code ends a run: a tool's failure goes to the model, a memory's is noted and passed over. The
message and the chain of causes beside the code say what went wrong this time.

`again` says whether another attempt now can help, as the retries make it; after they gave up it is
never, though the failure may pass later ([three facts](failures.md#three-facts)). `acted` says whether
the attempt may already have acted on the world. Some codes have several failures; a dash stands for
codes that are no error of their own.
";

/// Writes the page.
///
/// # Errors
///
/// [`XtaskError::File`] if the page cannot be written, and the errors of [`stated`].
pub(crate) fn write(root: &Path) -> Result<(), XtaskError> {
    page::write(root, PAGE, &text(CATALOGUE, &stated(root)?))
}

/// Compares the page with the catalogue, and the docs of failures with their facts; changes nothing.
///
/// # Errors
///
/// [`XtaskError::PageStale`] if the page differs, [`XtaskError::File`] if it cannot be read, and the errors of
/// [`stated`].
pub(crate) fn check(root: &Path) -> Result<(), XtaskError> {
    page::check(root, PAGE, "cargo xtask errors", &text(CATALOGUE, &stated(root)?))
}

/// Reads the facts of failures.
///
/// # Errors
///
/// [`XtaskError::FactsDrifted`] if docs differ, [`XtaskError::File`] and [`XtaskError::Syntax`] if the source cannot be
/// read.
fn stated(root: &Path) -> Result<Facts, XtaskError> {
    let facts = facts::read(root)?;
    if facts.drifted.is_empty() {
        Ok(facts)
    } else {
        Err(XtaskError::FactsDrifted { drifted: facts.drifted })
    }
}

/// Formats the catalogue as Markdown: one heading per family, one row per code.
fn text(catalogue: &[CodeEntry], facts: &Facts) -> String {
    let mut page = String::from(INTRO);
    for family in catalogue.chunk_by(|a, b| family(a) == family(b)) {
        let name = family.first().map_or("", self::family);
        let _infallible = write!(
            page,
            "\n## {name}\n\n| code | what happened | again | acted | what to do |\n\
             | --- | --- | --- | --- | --- |\n"
        );
        for CodeEntry { code, meaning, advice, .. } in family {
            // `PROVIDER_RATE_LIMITED` is the constant of `provider.rate_limited`.
            let row = facts.by_code.get(&code.to_uppercase().replace('.', "_"));
            let again = row.map_or("–".to_owned(), |row| said(&row.retry));
            let acted = row.map_or("–".to_owned(), |row| said(&row.effect));
            let (meaning, advice) = (cell(meaning), cell(advice));
            let _infallible =
                writeln!(page, "| `{code}` | {meaning} | {again} | {acted} | {advice} |");
        }
    }
    page
}

/// Returns the text for the facts of a code's failures.
fn said(words: &BTreeSet<&'static str>) -> String {
    let say = |word: &&'static str| match *word {
        "as" => "as the cause",
        "backoff" => "with backoff",
        "hint" => "after the hint",
        "none" => "no",
        "unknown" => "perhaps",
        "happened" => "yes",
        word => word,
    };
    words.iter().map(say).collect::<Vec<_>>().join(", ")
}

/// Returns the part of the code before the dot.
fn family(entry: &CodeEntry) -> &'static str {
    entry.code.split('.').next().unwrap_or(entry.code)
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Row;

    #[test]
    fn docs_errors_md_says_what_the_catalogue_says() {
        if let Err(error) = check(crate::root()) {
            panic!("{error}: {}", error.hint().unwrap_or_default());
        }
    }

    #[test]
    fn family_has_one_heading() {
        let entry = |code| CodeEntry::new(code, "It broke | badly.", "Fix it.");
        let row =
            Row { retry: ["never"].into(), effect: ["none", "unknown"].into(), ..Row::default() };
        let facts = Facts { by_code: [("A_TWO".to_owned(), row)].into(), ..Facts::default() };
        let page = text(&[entry("a.one"), entry("a.two"), entry("internal")], &facts);
        let tables = page.strip_prefix(INTRO).unwrap();
        assert_eq!(
            tables,
            "\n## a\n\n| code | what happened | again | acted | what to do |\n\
             | --- | --- | --- | --- | --- |\n\
             | `a.one` | It broke \\| badly. | – | – | Fix it. |\n\
             | `a.two` | It broke \\| badly. | never | no, perhaps | Fix it. |\n\
             \n## internal\n\n| code | what happened | again | acted | what to do |\n\
             | --- | --- | --- | --- | --- |\n\
             | `internal` | It broke \\| badly. | – | – | Fix it. |\n"
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
