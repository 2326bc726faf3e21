//! Counts of the names of functions.

use std::ops::RangeInclusive;

use syn::visit::{self, Visit};
use syn::{ImplItemFn, ItemFn, ReturnType, Signature, TraitItemFn, Type};

use super::counts::{LanguageCounts, Place};

/// Participles that do not end in `ed`.
const IRREGULAR: &[&str] = &[
    "given",
    "kept",
    "said",
    "told",
    "held",
    "taken",
    "left",
    "lost",
    "met",
    "made",
    "known",
    "shown",
    "sent",
    "built",
    "found",
    "begun",
    "done",
    "written",
    "gone",
    "come",
    "spent",
    "understood",
    "meant",
    "chosen",
    "driven",
    "seen",
    "heard",
];

/// The functions of a file, without those of tests.
pub(super) struct Functions {
    pub(super) total: usize,
    pub(super) places: Vec<Place>,
}

/// Reads the names of functions and methods.
pub(super) fn read(file: &syn::File, tests: &[RangeInclusive<usize>]) -> Functions {
    let mut reader = NameReader { tests, found: Functions { total: 0, places: Vec::new() } };
    reader.visit_file(file);
    reader.found
}

struct NameReader<'t> {
    tests: &'t [RangeInclusive<usize>],
    found: Functions,
}

impl NameReader<'_> {
    fn take(&mut self, signature: &Signature) {
        let line = signature.ident.span().start().line;
        if self.tests.iter().any(|part| part.contains(&line)) {
            return;
        }
        self.found.total += 1;
        let name = signature.ident.to_string();
        let is_participle = !name.contains('_')
            && (name.ends_with("ed") || IRREGULAR.contains(&name.as_str()))
            && !returns_bool(&signature.output);
        let counts = LanguageCounts {
            participles: usize::from(is_participle),
            of_names: usize::from(name == "of" || name.ends_with("_of")),
            ..LanguageCounts::default()
        };
        if counts != LanguageCounts::default() {
            self.found.places.push(Place { line, counts, text: format!("fn {name}") });
        }
    }
}

impl<'ast> Visit<'ast> for NameReader<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.take(&item.sig);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.take(&item.sig);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.take(&item.sig);
        visit::visit_trait_item_fn(self, item);
    }
}

fn returns_bool(output: &ReturnType) -> bool {
    let ReturnType::Type(_, ty) = output else { return false };
    matches!(&**ty, Type::Path(path) if path.path.is_ident("bool"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn participles_and_of_names_are_found() {
        let text = "fn taken() -> u8 { 1 }\nfn moved() {}\nfn closed() -> bool { true }\nfn text_of() {}\nstruct A;\nimpl A { fn of() {} fn is_done(&self) -> bool { true } }\ntrait T { fn kept(&self) -> u8; }\n";
        let found = read(&syn::parse_file(text).unwrap(), &[]);
        let names: Vec<&str> = found.places.iter().map(|place| place.text.as_str()).collect();
        assert_eq!(names, ["fn taken", "fn moved", "fn text_of", "fn of", "fn kept"]);
        assert_eq!(found.total, 7);
    }
}
