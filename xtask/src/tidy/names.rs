//! Checks of the names of tests, which are read in lists.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, ItemFn, Macro};

use crate::tidy::finding::Finding;
use crate::tidy::workspace::SourceFile;

/// Largest number of words in the name of a test.
const MAX_WORDS: usize = 8;

/// Finds tests with too long names.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    let mut tests = Tests(Vec::new());
    tests.visit_file(&file.syntax);
    let found = tests.0.iter().filter_map(|name| {
        let text = name.to_string();
        let words = text.split('_').count();
        let what = format!("`{text}` has {words} words, of at most {MAX_WORDS}");
        let line = name.span().start().line;
        (words > MAX_WORDS).then(|| Finding::error(&file.path, line, what))
    });
    found.collect()
}

/// The names of all tests of a file.
struct Tests(Vec<Ident>);

impl<'ast> Visit<'ast> for Tests {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if item.attrs.iter().any(is_test) {
            self.0.push(item.sig.ident.clone());
        }
        visit::visit_item_fn(self, item);
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        self.take_tokens(mac.tokens.clone());
    }
}

impl Tests {
    /// Finds tests in the tokens of a macro such as `proptest!`.
    fn take_tokens(&mut self, tokens: TokenStream) {
        let (mut is_marked, mut is_declared) = (false, false);
        for token in tokens {
            match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                    let last = group.stream().into_iter().last();
                    is_marked |= last.is_some_and(|last| last.to_string() == "test");
                }
                TokenTree::Group(group) => {
                    (is_marked, is_declared) = (false, false);
                    self.take_tokens(group.stream());
                }
                TokenTree::Ident(word) if word == "fn" => is_declared = is_marked,
                TokenTree::Ident(name) if is_declared => {
                    (is_marked, is_declared) = (false, false);
                    self.0.push(name);
                }
                _ => {}
            }
        }
    }
}

fn is_test(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "test")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<String> {
        let file = SourceFile::new("a.rs".to_owned(), text.to_owned()).unwrap();
        check(&file).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_of_nine_words_is_found() {
        let name = "one_two_three_four_five_six_seven_eight";
        let found = format!(": `{name}_nine` has 9 words, of at most 8");
        for attribute in ["#[test]", "#[tokio::test]", "#[tokio::test(flavor = \"x\")]"] {
            assert_eq!(said(&format!("{attribute}\nfn {name}() {{}}\n")), [""; 0]);
            let long = format!("{attribute}\nfn {name}_nine() {{}}\n");
            assert_eq!(said(&long), [format!("a.rs:2{found}")]);
            assert_eq!(said(&format!("mod tests {{\n{long}}}\n")), [format!("a.rs:3{found}")]);
        }
        let in_macro =
            format!("proptest! {{\n/// Doc.\n#[test]\nfn {name}_nine(a in 1..2) {{}}\n}}\n");
        assert_eq!(said(&in_macro), [format!("a.rs:4{found}")]);
        assert_eq!(said(&format!("fn {name}_nine() {{}}\n")), [""; 0]);
    }
}
