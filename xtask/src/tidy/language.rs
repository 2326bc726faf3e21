//! Plain language in comments and names: rates for each crate, with limits that well-kept Rust crates keep.

mod comments;
mod counts;
mod crate_language;
mod functions;
mod limits;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{ItemEnum, ItemStruct, ItemTrait};

pub(crate) use self::comments::count_private as private_words;
use self::crate_language::{CrateLanguage, FoundPlace};
use crate::error::XtaskError;
use crate::tidy::finding::Finding;
use crate::tidy::syntax::test_parts;
use crate::tidy::workspace::{SourceFile, Workspace};

/// The counts of all crates.
#[derive(Debug, Default)]
struct Figures {
    crates: BTreeMap<String, CrateLanguage>,
    /// Type names that are defined more than once.
    shared_types: usize,
}

/// Finds the places in crates whose rates are above the limits.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let figures = Figures::count(files);
    let mut found = limits::check_shared_types(figures.shared_types);
    for (name, language) in &figures.crates {
        found.extend(limits::check(name, language));
    }
    found
}

/// Prints the rates and the worst places.
///
/// # Errors
///
/// [`XtaskError`] if the workspace cannot be read.
pub(crate) fn run(root: &Path, worst: usize) -> Result<(), XtaskError> {
    Figures::count(&Workspace::load(root)?.files).print(worst);
    Ok(())
}

impl Figures {
    fn count(files: &[SourceFile]) -> Self {
        let mut figures = Self::default();
        let mut types = BTreeMap::<String, usize>::new();
        for file in files {
            if let Some(name) = product_crate(&file.path) {
                figures.crates.entry(name.to_owned()).or_default().add(file);
                let mut found = TypeNames { tests: test_parts(&file.syntax), names: Vec::new() };
                found.visit_file(&file.syntax);
                found.names.into_iter().for_each(|name| *types.entry(name).or_default() += 1);
            }
        }
        figures.shared_types = types.values().filter(|count| **count > 1).count();
        figures
    }

    fn print(&self, worst: usize) {
        let mut all = CrateLanguage::default();
        for (name, language) in &self.crates {
            println!("{name}: {}", limits::describe_rates(language));
            all.merge(language);
        }
        println!("all: {}", limits::describe_rates(&all));
        println!("{} type names are defined more than once", self.shared_types);
        all.places.sort_by_key(|found| std::cmp::Reverse(found.place.counts.weight()));
        for FoundPlace { path, place } in all.places.iter().take(worst) {
            println!("{} {path}:{}: {}", place.counts.weight(), place.line, place.text);
        }
    }
}

/// Returns the crate of a file of product code; `None` for other files.
fn product_crate(path: &str) -> Option<&str> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let parts: BTreeSet<&str> = rest.split('/').collect();
    let is_test = parts.contains("tests.rs") || parts.contains("tests");
    (name != "testkit" && !is_test).then_some(name)
}

/// The types that a file defines outside its tests.
struct TypeNames {
    tests: Vec<std::ops::RangeInclusive<usize>>,
    names: Vec<String>,
}

impl TypeNames {
    fn take(&mut self, name: &syn::Ident) {
        let line = name.span().start().line;
        if !self.tests.iter().any(|part| part.contains(&line)) {
            self.names.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for TypeNames {
    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.take(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.take(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.take(&item.ident);
        visit::visit_item_trait(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::counts::LanguageCounts;
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile::new(path.to_owned(), text.to_owned()).unwrap()
    }

    #[test]
    fn product_code_is_counted_by_crate() {
        let files = [
            file(
                "crates/a/src/lib.rs",
                "/// What a run is told.\npub struct Run;\nfn taken() -> u8 { 1 }\n",
            ),
            file(
                "crates/b/src/lib.rs",
                "/// Is it?\npub struct Run;\nfn name_of() {}\n#[cfg(test)]\nmod tests {\n    /// How?\n    struct X;\n}\n",
            ),
            file("crates/testkit/src/lib.rs", "/// What it says.\npub struct Run;\n"),
            file("crates/a/tests/it.rs", "/// What it says.\nstruct Run;\n"),
        ];
        let figures = Figures::count(&files);
        let a = LanguageCounts { heads: 1, private_words: 1, participles: 1, ..Default::default() };
        let b = LanguageCounts { questions: 1, of_names: 1, ..Default::default() };
        let counts = figures.crates.iter().map(|(name, language)| (name.as_str(), language.counts));
        assert_eq!(counts.collect::<Vec<_>>(), [("a", a), ("b", b)]);
        let a = &figures.crates["a"];
        assert_eq!((a.paragraphs, a.comment_lines, a.functions), (1, 1, 1));
        assert_eq!(a.places[0].path, "crates/a/src/lib.rs");
        assert_eq!(figures.shared_types, 1);
    }

    #[test]
    fn places_above_a_limit_are_errors() {
        let one = "/// What a run is told.\npub struct Run;\n";
        let two = format!("{one}{}", one.replace("Run", "Other"));
        let said = |text: &str| -> Vec<String> {
            let files = [file("crates/a/src/lib.rs", text)];
            check(&files).iter().map(ToString::to_string).collect()
        };
        assert!(said(one).is_empty(), "a small crate may have one");
        let found = said(&two);
        assert_eq!(found.len(), 4, "{found:?}");
        let first = "crates/a/src/lib.rs:1: `What a run is told.`: a comment that begins with What, How, Who …; \
                     crate `a` has 2 of them, at most 1";
        assert_eq!(found[0], first);
    }
}
