//! A Rust file as tokens, so that comments and strings never look like code.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Group, Ident, LexError, TokenStream, TokenTree};

/// Words that an item can begin with; what else carries `#[cfg(test)]` is a field or an arm.
const ITEM_WORDS: &[&str] = &[
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "pub",
    "static",
    "struct",
    "trait",
    "type",
    "unsafe",
    "use",
];

/// Cuts a file into tokens.
///
/// # Errors
///
/// [`LexError`] when the text is not Rust.
pub(crate) fn lex(text: &str) -> Result<Vec<TokenTree>, LexError> {
    Ok(text.parse::<TokenStream>()?.into_iter().collect())
}

/// Calls `visit` for every run of sibling tokens: the file itself, then each group inside it.
pub(crate) fn visit_levels(level: &[TokenTree], visit: &mut impl FnMut(&[TokenTree])) {
    visit(level);
    for token in level {
        if let TokenTree::Group(group) = token {
            visit_levels(&inside(group), visit);
        }
    }
}

/// Returns the tokens of a group.
pub(crate) fn inside(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

/// Returns the line, from 1, where a token begins.
pub(crate) fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

/// Says whether a token is this punctuation mark.
pub(crate) fn is_punct(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// Returns a token as a word.
pub(crate) fn as_word(token: &TokenTree) -> Option<&Ident> {
    match token {
        TokenTree::Ident(ident) => Some(ident),
        _ => None,
    }
}

/// Returns a token as a group in these brackets.
pub(crate) fn as_group(token: &TokenTree, delimiter: Delimiter) -> Option<&Group> {
    match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

/// An attribute, `#[…]` or `#![…]`, at the front of some tokens.
pub(crate) struct Attribute {
    /// What stands between the brackets.
    pub(crate) content: Vec<TokenTree>,
    /// Whether it has the `!` and so speaks of what surrounds it.
    pub(crate) inner: bool,
    /// How many tokens it takes.
    pub(crate) len: usize,
}

/// Reads the attribute that some tokens begin with.
pub(crate) fn attribute(tokens: &[TokenTree]) -> Option<Attribute> {
    let (hash, rest) = tokens.split_first()?;
    if !is_punct(hash, '#') {
        return None;
    }
    let inner = rest.first().is_some_and(|token| is_punct(token, '!'));
    let group = as_group(rest.get(usize::from(inner))?, Delimiter::Bracket)?;
    Some(Attribute { content: inside(group), inner, len: 2 + usize::from(inner) })
}

/// Returns the lines of everything that only tests compile.
pub(crate) fn test_parts(file: &[TokenTree]) -> Vec<RangeInclusive<usize>> {
    let mut parts = Vec::new();
    visit_levels(file, &mut |level| {
        for (index, token) in level.iter().enumerate() {
            let Some(attribute) = attribute(&level[index..]) else { continue };
            if !is_cfg_test(&attribute.content) {
                continue;
            }
            let after = &level[index + attribute.len..];
            let last = if attribute.inner { level.last() } else { end_of_item(after) };
            if let Some(last) = last {
                parts.push(line(token)..=last.span().end().line);
            }
        }
    });
    parts
}

/// Recognises `cfg(test)` and `cfg(all(test, …))`.
fn is_cfg_test(attribute: &[TokenTree]) -> bool {
    fn demands_test(condition: &[TokenTree]) -> bool {
        condition.iter().enumerate().any(|(index, token)| match as_word(token) {
            Some(word) if word == "test" => true,
            Some(word) if word == "all" => condition
                .get(index + 1)
                .and_then(|next| as_group(next, Delimiter::Parenthesis))
                .is_some_and(|group| demands_test(&inside(group))),
            _ => false,
        })
    }
    let [word, condition] = attribute else { return false };
    as_word(word).is_some_and(|word| word == "cfg")
        && as_group(condition, Delimiter::Parenthesis)
            .is_some_and(|group| demands_test(&inside(group)))
}

/// Returns the last token of the item, field or arm that some tokens begin with.
fn end_of_item(mut tokens: &[TokenTree]) -> Option<&TokenTree> {
    while let Some(attribute) = attribute(tokens) {
        tokens = &tokens[attribute.len..];
    }
    let first = as_word(tokens.first()?);
    let is_item = first.is_some_and(|word| ITEM_WORDS.iter().any(|known| word == known));
    let ends = |token: &&TokenTree| {
        is_punct(token, ';')
            || as_group(token, Delimiter::Brace).is_some()
            || (!is_item && is_punct(token, ','))
    };
    tokens.iter().find(ends).or(tokens.last())
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
            ("#[cfg(test)]\nfn f<A, B>() {\n}\nfn h() {}\n", &[1..=3]),
            ("struct S {\n    #[cfg(test)]\n    a: u8,\n    b: u8,\n}\nfn f() {}\n", &[2..=3]),
            ("mod a {\n    #[cfg(all(test, unix))]\n    mod tests {\n    }\n}\n", &[2..=4]),
            ("#![cfg(test)]\nfn f() {}\nfn g() {}\n", &[1..=3]),
            ("#[cfg(any(test, unix))]\nmod a {}\n", &[]),
            ("#[cfg(not(test))]\nmod a {}\n", &[]),
            ("// #[cfg(test)]\nconst A: &str = \"#[cfg(test)] mod a {}\";\n", &[]),
        ];
        for (text, wanted) in cases {
            assert_eq!(test_parts(&lex(text).unwrap()), *wanted, "{text}");
        }
    }
}
