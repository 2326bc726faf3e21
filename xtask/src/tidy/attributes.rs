//! No test is switched off, no panic is taken for a proof, no lint is silenced without a reason.

use proc_macro2::{Delimiter, TokenTree};

use crate::tidy::finding::Finding;
use crate::tidy::tokens::{as_group, as_word, attribute, inside, lex, line, visit_levels};
use crate::tidy::workspace::SourceFile;

/// Finds forbidden attributes; tests are held to this as well.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    // What is not Rust is reported with the panics.
    let Ok(tokens) = lex(&file.text) else { return Vec::new() };
    let mut findings = Vec::new();
    visit_levels(&tokens, &mut |level| {
        for (index, token) in level.iter().enumerate() {
            let Some(attribute) = attribute(&level[index..]) else { continue };
            if let Some(what) = objection(&attribute.content) {
                findings.push(Finding::error(&file.path, line(token), what));
            }
        }
    });
    findings
}

fn objection(content: &[TokenTree]) -> Option<String> {
    let name = as_word(content.first()?)?.to_string();
    let arguments =
        content.get(1).and_then(|next| as_group(next, Delimiter::Parenthesis)).map(inside);
    match name.as_str() {
        "allow" | "expect" => {
            let gives_reason =
                |token: &TokenTree| as_word(token).is_some_and(|word| word == "reason");
            let reasoned = arguments.is_some_and(|arguments| arguments.iter().any(gives_reason));
            (!reasoned).then(|| format!("`#[{name}(…)]` without a reason"))
        }
        // After the condition and its comma stands an attribute like any other.
        "cfg_attr" => arguments?.windows(2).find_map(objection),
        "ignore" => Some("`#[ignore]`: a test that does not run proves nothing".to_owned()),
        "should_panic" => Some("`#[should_panic]`: assert the error instead".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<String> {
        let file = SourceFile { path: "a.rs".to_owned(), text: text.to_owned() };
        check(&file).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn finds_attributes_that_hide_something() {
        let cases: &[(&str, &[&str])] = &[
            ("#[allow(dead_code, reason = \"used by a macro\")]\nfn f() {}\n", &[]),
            ("\n#[allow(dead_code)]\nfn f() {}\n", &["a.rs:2: `#[allow(…)]` without a reason"]),
            ("#![allow(dead_code)]\n", &["a.rs:1: `#[allow(…)]` without a reason"]),
            ("#[expect(dead_code)]\nfn f() {}\n", &["a.rs:1: `#[expect(…)]` without a reason"]),
            (
                "#[cfg_attr(unix, allow(dead_code))]\nfn f() {}\n",
                &["a.rs:1: `#[allow(…)]` without a reason"],
            ),
            (
                "mod tests {\n    #[test]\n    #[ignore = \"slow\"]\n    fn f() {}\n}\n",
                &["a.rs:3: `#[ignore]`: a test that does not run proves nothing"],
            ),
            (
                "#[should_panic]\nfn f() {}\n",
                &["a.rs:1: `#[should_panic]`: assert the error instead"],
            ),
            ("// #[ignore]\n/// `#[allow(x)]`\nfn f() { x.expect(\"#[ignore]\") }\n", &[]),
        ];
        for (text, wanted) in cases {
            assert_eq!(said(text), *wanted, "{text}");
        }
    }
}
