//! Plain language in comments and names, counted for each crate against a baseline that may only fall.

mod baseline;
mod comments;
mod counts;
mod functions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{ItemEnum, ItemStruct, ItemTrait};

pub(crate) use self::baseline::BASELINE;
use self::baseline::Baseline;
use self::counts::LanguageCounts;
use crate::error::XtaskError;
use crate::tidy::finding::Finding;
use crate::tidy::syntax::test_parts;
use crate::tidy::workspace::{SourceFile, Workspace};

/// The counts of all crates.
#[derive(Debug, Default)]
struct Figures {
    crates: BTreeMap<String, LanguageCounts>,
    comment_lines: usize,
    paragraphs: usize,
    functions: usize,
    /// Type names that are defined more than once.
    shared_types: usize,
    /// The places, with their files, worst first.
    worst: Vec<(usize, String)>,
}

/// Finds crates whose counts rose above the baseline, and crates whose baseline is too high.
pub(crate) fn check(files: &[SourceFile], baseline: Option<&str>) -> Vec<Finding> {
    let Some(Ok(baseline)) = baseline.map(Baseline::parse) else {
        let what = "cannot be read; `cargo xtask language --lower` writes it";
        return vec![Finding::error(BASELINE, 1, what)];
    };
    let figures = Figures::count(files);
    baseline.compare(&figures.crates, figures.shared_types)
}

/// Prints the counts, the crates and the worst places; lowers the baseline if `lower`.
///
/// # Errors
///
/// [`XtaskError`] if the workspace cannot be read or the baseline cannot be written.
pub(crate) fn run(root: &Path, worst: usize, lower: bool) -> Result<(), XtaskError> {
    let files = Workspace::load(root)?.files;
    let figures = Figures::count(&files);
    figures.print(worst);
    if lower {
        baseline::lower(root, figures.crates, figures.shared_types)?;
    }
    Ok(())
}

impl Figures {
    fn count(files: &[SourceFile]) -> Self {
        let mut figures = Self::default();
        let mut types = BTreeMap::<String, usize>::new();
        for file in files {
            if let Some(name) = product_crate(&file.path) {
                figures.add(name, file);
                let mut found = TypeNames { tests: test_parts(&file.syntax), names: Vec::new() };
                found.visit_file(&file.syntax);
                found.names.into_iter().for_each(|name| *types.entry(name).or_default() += 1);
            }
        }
        figures.shared_types = types.values().filter(|count| **count > 1).count();
        figures.worst.sort_by(|one, other| other.cmp(one));
        figures
    }

    fn add(&mut self, name: &str, file: &SourceFile) {
        let tests = test_parts(&file.syntax);
        let comments = comments::read(&file.text, &tests);
        let functions = functions::read(&file.syntax, &tests);
        self.comment_lines += comments.lines;
        self.paragraphs += comments.paragraphs;
        self.functions += functions.total;
        let counts = self.crates.entry(name.to_owned()).or_default();
        for place in comments.places.iter().chain(&functions.places) {
            counts.add(place.counts);
            let text: String = place.text.chars().take(120).collect();
            self.worst
                .push((place.counts.weight(), format!("{}:{}: {text}", file.path, place.line)));
        }
    }

    fn print(&self, worst: usize) {
        let mut all = LanguageCounts::default();
        self.crates.values().for_each(|counts| all.add(*counts));
        let rate = |count: usize, per: usize, of: usize| {
            let tenths = (10 * per * count + of / 2) / of.max(1);
            format!("{}.{}", tenths / 10, tenths % 10)
        };
        println!(
            "{} of 100 comment paragraphs begin with What, How, Who …",
            rate(all.heads, 100, self.paragraphs)
        );
        println!("{} of 100 comment paragraphs ask", rate(all.questions, 100, self.paragraphs));
        println!(
            "{} private words in 1,000 comment lines",
            rate(all.private_words, 1000, self.comment_lines)
        );
        println!(
            "{} of 1,000 functions are named by a participle",
            rate(all.participles, 1000, self.functions)
        );
        println!(
            "{} of 1,000 functions are named `of` or `…_of`",
            rate(all.of_names, 1000, self.functions)
        );
        println!("{} type names are defined more than once", self.shared_types);
        for (name, counts) in &self.crates {
            println!("{name}: {counts:?}");
        }
        for (weight, place) in self.worst.iter().take(worst) {
            println!("{weight} {place}");
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
        assert_eq!(figures.crates, BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]));
        assert_eq!(figures.shared_types, 1);
        assert!(figures.worst[0].1.starts_with("crates/a/src/lib.rs:1: What"), "{figures:?}");
    }

    #[test]
    fn counts_above_the_baseline_are_errors() {
        let files = [file("crates/a/src/lib.rs", "/// What a run is told.\npub struct Run;\n")];
        let said = |baseline: &str| -> Vec<String> {
            check(&files, Some(baseline)).iter().map(ToString::to_string).collect()
        };
        let exact = "shared_types = 0\n[crates.a]\nheads = 1\nprivate_words = 1\n";
        assert!(said(exact).is_empty());
        let low = said("shared_types = 0\n[crates.a]\nheads = 0\nprivate_words = 1\n");
        assert!(
            low[0].starts_with("xtask/language.toml:1: crate `a`: heads rose from 0 to 1"),
            "{low:?}"
        );
        let high = said("shared_types = 2\n[crates.a]\nheads = 1\nprivate_words = 5\n");
        assert!(high.iter().all(|line| line.contains("warning: ")) && high.len() == 2, "{high:?}");
        assert!(said("?")[0].contains("cannot be read"));
        assert!(check(&files, None)[0].to_string().contains("--lower"));
    }
}
