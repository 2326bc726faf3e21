//! Checks that the names of types are unique in a crate.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Ident, Item, ItemMod, Lit, Meta};

use crate::tidy::finding::Finding;
use crate::tidy::syntax::{attributes, is_for_tests};
use crate::tidy::workspace::SourceFile;

/// Finds types with the name of another type of their crate.
///
/// Types for tests and types that macros create do not count. Types that each have a `cfg` count as one type that
/// differs by platform or feature.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut crates = BTreeMap::<&str, Vec<&SourceFile>>::new();
    for file in files {
        if let Some((name, _)) = file.path.split_once("/src/") {
            crates.entry(name).or_default().push(file);
        }
    }
    crates.values().flat_map(|files| repeated(files)).collect()
}

/// Checks the files of one crate.
fn repeated(files: &[&SourceFile]) -> Vec<Finding> {
    let mut outer = Outer::default();
    files.iter().for_each(|file| outer.read(file));
    let mut first = BTreeMap::<String, (&str, usize, bool)>::new();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !is_below(&file.path, &outer.tests)) {
        let mut types = Types { has_cfg: is_below(&file.path, &outer.conditional), found: vec![] };
        types.visit_file(&file.syntax);
        for (name, has_cfg) in types.found {
            let line = name.span().start().line;
            match first.get(&name.to_string()) {
                Some((_, _, other_has_cfg)) if has_cfg && *other_has_cfg => {}
                Some((path, other, _)) => {
                    let what = format!("`{name}` is a type in {path}:{other} too; rename one");
                    found.push(Finding::error(&file.path, line, what));
                }
                None => {
                    first.insert(name.to_string(), (&file.path, line, has_cfg));
                }
            }
        }
    }
    found
}

/// Returns whether a file is one of these modules, or a child of one.
fn is_below(path: &str, modules: &BTreeSet<String>) -> bool {
    let path = path.trim_end_matches(".rs");
    let is_within = |module: &String| {
        path.strip_prefix(module.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    modules.iter().any(is_within)
}

/// Modules in files of their own that are not always compiled, by their paths without `.rs`.
#[derive(Default)]
struct Outer {
    tests: BTreeSet<String>,
    conditional: BTreeSet<String>,
}

impl Outer {
    fn read(&mut self, file: &SourceFile) {
        let path = file.path.trim_end_matches(".rs");
        let (folder, stem) = path.rsplit_once('/').unwrap_or(("", path));
        let children = if matches!(stem, "lib" | "main") { folder } else { path };
        for item in &file.syntax.items {
            let Item::Mod(ItemMod { attrs, ident, content: None, .. }) = item else { continue };
            let module = match path_of(attrs) {
                Some(path) => format!("{folder}/{}", path.trim_end_matches(".rs")),
                None => format!("{children}/{ident}"),
            };
            if is_for_tests(attrs) {
                self.tests.insert(module);
            } else if has_cfg(attrs) {
                self.conditional.insert(module);
            }
        }
        if is_for_tests(&file.syntax.attrs) {
            self.tests.insert(path.to_owned());
        }
    }
}

/// Returns the value of `#[path = "…"]`.
fn path_of(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(value) => match &value.lit {
                Lit::Str(path) => Some(path.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}

fn has_cfg(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg"))
}

/// The types of a file.
struct Types {
    /// Whether the visited item has a `cfg`.
    has_cfg: bool,
    /// The types, each with whether it has a `cfg`.
    found: Vec<(Ident, bool)>,
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        let around = self.has_cfg;
        self.has_cfg |= has_cfg(attributes(item));
        let name = match item {
            Item::Enum(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            _ => None,
        };
        self.found.extend(name.map(|name| (name.clone(), self.has_cfg)));
        visit::visit_item(self, item);
        self.has_cfg = around;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| {
            SourceFile::new((*path).to_owned(), (*text).to_owned()).unwrap()
        };
        let files: Vec<SourceFile> = files.iter().map(file).collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn two_types_of_one_name_are_found() {
        let found = ["a/src/b.rs:2: `Kind` is a type in a/src/lib.rs:1 too; rename one"];
        for other in ["struct Kind;", "enum Kind {}", "trait Kind {}", "fn f() { struct Kind; }"] {
            let other = format!("// A comment.\n{other}");
            assert_eq!(said(&[("a/src/lib.rs", "struct Kind;"), ("a/src/b.rs", &other)]), found);
            assert_eq!(said(&[("a/src/lib.rs", "struct Kind;"), ("b/src/b.rs", &other)]), [""; 0]);
        }
        assert_eq!(said(&[("a/src/lib.rs", "struct A; mod b { struct A; }")]).len(), 1);
    }

    #[test]
    fn tests_macros_and_alternatives_do_not_count() {
        let kind = "struct Kind;";
        let alone = |text: &str| said(&[("a/src/lib.rs", kind), ("a/src/b.rs", text)]);
        assert_eq!(alone("#[cfg(test)] mod tests { struct Kind; }"), [""; 0]);
        assert_eq!(alone("made! { struct Kind; }"), [""; 0]);
        assert_eq!(alone("#[cfg(unix)] struct Kind;").len(), 1);
        let either = "#[cfg(unix)] struct A; #[cfg(not(unix))] struct A;";
        assert_eq!(said(&[("a/src/lib.rs", either)]), [""; 0]);

        let declared = "struct Kind; #[cfg(test)] mod tests;";
        assert_eq!(said(&[("a/src/b.rs", declared), ("a/src/b/tests/c.rs", kind)]), [""; 0]);
        assert_eq!(said(&[("a/src/b.rs", declared), ("a/src/b/testing.rs", kind)]).len(), 1);
        let declared = "#[cfg(x)] mod one; #[cfg(not(x))] #[path = \"b/two.rs\"] mod one;";
        let files = [("a/src/b.rs", declared), ("a/src/b/one.rs", kind), ("a/src/b/two.rs", kind)];
        assert_eq!(said(&files), [""; 0]);
    }
}
