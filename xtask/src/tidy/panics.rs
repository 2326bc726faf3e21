//! Shipped code does not panic for want of a thought: no `unwrap`, `todo!` or `unimplemented!`.

use proc_macro2::{Delimiter, TokenTree};

use crate::tidy::finding::Finding;
use crate::tidy::layout::is_test_file;
use crate::tidy::tokens::{
    as_group, as_word, inside, is_punct, lex, line, test_parts, visit_levels,
};
use crate::tidy::workspace::SourceFile;

/// Finds calls in a crate's `src/`, outside its tests, that stand for an answer nobody gave.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    if !file.path.contains("/src/") || is_test_file(&file.path) {
        return Vec::new();
    }
    let tokens = match lex(&file.text) {
        Ok(tokens) => tokens,
        Err(error) => {
            let line = error.span().start().line.max(1);
            return vec![Finding::error(&file.path, line, "cannot be read as Rust")];
        }
    };
    let tests = test_parts(&tokens);
    let mut findings = Vec::new();
    visit_levels(&tokens, &mut |level| {
        for window in level.windows(2) {
            let Some(what) = forbidden(&window[0], &window[1]) else { continue };
            let line = line(&window[0]);
            if !tests.iter().any(|part| part.contains(&line)) {
                findings.push(Finding::error(&file.path, line, what));
            }
        }
        findings.extend(unwraps(level).filter_map(|line| {
            let shipped = !tests.iter().any(|part| part.contains(&line));
            shipped.then(|| Finding::error(&file.path, line, "`.unwrap()` outside tests"))
        }));
    });
    findings
}

/// Recognises `todo!` and `unimplemented!`.
fn forbidden(word: &TokenTree, bang: &TokenTree) -> Option<String> {
    let word = as_word(word).filter(|word| *word == "todo" || *word == "unimplemented")?;
    is_punct(bang, '!').then(|| format!("`{word}!` outside tests"))
}

/// Yields the lines of `.unwrap()`.
fn unwraps(level: &[TokenTree]) -> impl Iterator<Item = usize> {
    level.windows(3).filter_map(|window| {
        let [dot, word, call] = window else { return None };
        let found = is_punct(dot, '.')
            && as_word(word).is_some_and(|word| word == "unwrap")
            && as_group(call, Delimiter::Parenthesis).is_some_and(|group| inside(group).is_empty());
        found.then(|| line(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> Vec<String> {
        let file = SourceFile { path: path.to_owned(), text: text.to_owned() };
        check(&file).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn finds_panics_in_code_and_nowhere_else() {
        let src = "crates/a/src/b.rs";
        let cases: &[(&str, &str, &[&str])] = &[
            (
                src,
                "fn f() {\n    g()\n        .unwrap();\n}\n",
                &["crates/a/src/b.rs:3: `.unwrap()` outside tests"],
            ),
            (
                src,
                "fn f() { assert!(g().unwrap()); }\n",
                &["crates/a/src/b.rs:1: `.unwrap()` outside tests"],
            ),
            (
                src,
                "fn f() { todo!() }\nfn g() {\n    unimplemented!(\"later\")\n}\n",
                &[
                    "crates/a/src/b.rs:1: `todo!` outside tests",
                    "crates/a/src/b.rs:3: `unimplemented!` outside tests",
                ],
            ),
            (
                src,
                "/// Never `x.unwrap()`.\nfn f() { g(\".unwrap()\").unwrap_or(1) } // todo!()\n",
                &[],
            ),
            (src, "#[cfg(test)]\nmod tests {\n    fn f() { g().unwrap() }\n}\n", &[]),
            (src, "fn f() {\n", &["crates/a/src/b.rs:1: cannot be read as Rust"]),
            ("crates/a/tests/b.rs", "fn f() { g().unwrap() }\n", &[]),
            ("crates/a/src/b/tests.rs", "fn f() { g().unwrap() }\n", &[]),
        ];
        for (path, text, wanted) in cases {
            assert_eq!(said(path, text), *wanted, "{path}: {text}");
        }
    }
}
