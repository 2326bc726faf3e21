//! Code for tests in the syntax of a file.

use std::ops::RangeInclusive;

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, Meta, Token};

/// Returns the lines of every item that is compiled only for tests.
pub(crate) fn test_parts(file: &File) -> Vec<RangeInclusive<usize>> {
    let mut parts = TestParts(Vec::new());
    if is_for_tests(&file.attrs) {
        return vec![1..=usize::MAX];
    }
    parts.visit_file(file);
    parts.0
}

/// Returns whether an item with these attributes is compiled only for tests.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    let is_cfg_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args().is_ok_and(|condition| demands_test(&condition))
    };
    attributes.iter().any(is_cfg_test)
}

/// Returns the attributes of an item.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether a condition is `test` or `all(test, …)`.
fn demands_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|all| all.iter().any(demands_test)),
        Meta::List(_) | Meta::NameValue(_) => false,
    }
}

struct TestParts(Vec<RangeInclusive<usize>>);

impl<'ast> Visit<'ast> for TestParts {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_for_tests(attributes(item)) {
            self.0.push(item.span().start().line..=item.span().end().line);
        } else {
            visit::visit_item(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_only_tests_compile() {
        let cases: &[(&str, &[RangeInclusive<usize>])] = &[
            ("fn f() {}\n", &[]),
            ("fn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\nfn h() {}\n", &[3..=6]),
            ("#[cfg(test)]\nmod tests;\nfn h() {}\n", &[1..=2]),
            ("#[cfg(test)]\n#[path = \"x.rs\"]\npub(crate) mod tests;\n", &[1..=3]),
            ("mod a {\n    #[cfg(all(unix, test))]\n    mod tests {\n    }\n}\n", &[2..=4]),
            ("#![cfg(test)]\nfn f() {}\nfn g() {}\n", &[1..=usize::MAX]),
            ("#[cfg(any(test, unix))]\nmod a {}\n", &[]),
            ("#[cfg(not(test))]\nmod a {}\n", &[]),
            ("// #[cfg(test)]\nconst A: &str = \"#[cfg(test)] mod a {}\";\n", &[]),
        ];
        for (text, wanted) in cases {
            assert_eq!(test_parts(&syn::parse_file(text).unwrap()), *wanted, "{text}");
        }
    }
}
