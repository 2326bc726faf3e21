//! A row of facts, in the words of docs.

use std::collections::BTreeSet;
use std::fmt;

use layer0::code::CATALOGUE;
use syn::{Block, Expr, ExprCall, ExprMethodCall, Pat, Path, Stmt};

type Words = BTreeSet<&'static str>;

/// Word for an answer that is computed: that of an inner error.
const AS: &str = "as";

/// The facts of a row: names of codes' constants, and the words for its answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) codes: BTreeSet<String>,
    pub(crate) retry: Words,
    pub(crate) effect: Words,
}

impl Row {
    /// Reads the expression of a row: returns all rows that it may evaluate to.
    pub(super) fn of(row: &Expr) -> Vec<Self> {
        match row {
            Expr::Block(block) => Self::of_block(&block.block.stmts),
            Expr::Call(call) => vec![Self::of_call(call).unwrap_or_else(Self::computed)],
            Expr::If(choice) => {
                let mut rows = Self::of_block(&choice.then_branch.stmts);
                rows.extend(choice.else_branch.iter().flat_map(|(_, other)| Self::of(other)));
                rows
            }
            Expr::MethodCall(call) => Self::of_method(call),
            Expr::Paren(inside) => Self::of(&inside.expr),
            _ => vec![Self::computed()],
        }
    }

    /// Reads the last expression of a block.
    pub(super) fn of_block(block: &[Stmt]) -> Vec<Self> {
        match block.last() {
            Some(Stmt::Expr(row, None)) => Self::of(row),
            _ => vec![Self::computed()],
        }
    }

    fn of_call(call: &ExprCall) -> Option<Self> {
        let Expr::Path(function) = &*call.func else { return None };
        let retry = match last(&function.path, "Facts")?.as_str() {
            "never" => [NEVER].into(),
            "backoff" => [BACKOFF].into(),
            "from_hint" => [HINT, BACKOFF].into(),
            "new" => words(call.args.iter().nth(1)?, retry_word),
            _ => return None,
        };
        let effect = words(call.args.last()?, effect_word);
        Some(Self { codes: code(call.args.first()?).into_iter().collect(), retry, effect })
    }

    fn of_method(call: &ExprMethodCall) -> Vec<Self> {
        let rows = || Self::of(&call.receiver).into_iter();
        match (call.method.to_string().as_str(), call.args.first()) {
            (
                "with_elsewhere"
                | "with_counts_against"
                | "with_beside"
                | "with_later"
                | "with_sent",
                _,
            ) => rows().collect(),
            ("with_retry", Some(retry)) => {
                rows().map(|row| Self { retry: words(retry, retry_word), ..row }).collect()
            }
            ("with_effect", Some(effect)) => {
                rows().map(|row| Self { effect: words(effect, effect_word), ..row }).collect()
            }
            ("with_code", Some(name)) => {
                rows().map(|row| Self { codes: code(name).into_iter().collect(), ..row }).collect()
            }
            ("map_or", Some(without)) => {
                let mut rows = Self::of(without);
                rows.push(Self::computed());
                rows
            }
            _ => vec![Self::computed()],
        }
    }

    fn computed() -> Self {
        Self { codes: BTreeSet::new(), retry: [AS].into(), effect: [AS].into() }
    }

    /// Merges rows.
    pub(super) fn all(rows: impl IntoIterator<Item = Self>) -> Self {
        rows.into_iter().fold(Self::default(), |mut all, row| {
            all.codes.extend(row.codes);
            all.retry.extend(row.retry);
            all.effect.extend(row.effect);
            all
        })
    }

    /// Compares the row with `Retry: …. Effect: ….` of the docs.
    pub(super) fn agrees_with(&self, docs: &str) -> Result<(), String> {
        let missing = || "has no `Retry: …. Effect: ….` in its docs".to_owned();
        let (_, facts) = docs.split_once("Retry: ").ok_or_else(missing)?;
        let (retry, facts) = facts.split_once(". Effect: ").ok_or_else(missing)?;
        let (effect, _) = facts.split_once('.').ok_or_else(missing)?;
        for (fact, said, stated) in
            [("Retry", retry, &self.retry), ("Effect", effect, &self.effect)]
        {
            if said_words(said) != *stated {
                let stated = match stated.is_empty() {
                    true => "nothing".to_owned(),
                    false => stated.iter().copied().collect::<Vec<_>>().join(", "),
                };
                return Err(format!("says `{fact}: {said}`, its row {stated}"));
            }
        }
        Ok(())
    }
}

/// As `code | retry | effect`; what an error inside answers is `as`.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |words: &Words| words.iter().copied().collect::<Vec<_>>().join(", ");
        let codes: Vec<&str> = self.codes.iter().map(|constant| find_code(constant)).collect();
        let codes = if codes.is_empty() { AS.to_owned() } else { codes.join(", ") };
        write!(f, "{codes} | {} | {}", join(&self.retry), join(&self.effect))
    }
}

/// Returns the code of a constant of the catalogue.
fn find_code(constant: &str) -> &str {
    let is_named = |code: &str| code.to_uppercase().replace('.', "_") == constant;
    let entry = CATALOGUE.iter().find(|entry| is_named(entry.code));
    entry.map_or(constant, |entry| entry.code)
}

const NEVER: &str = "never";
const BACKOFF: &str = "backoff";
const HINT: &str = "hint";

/// Returns the words of a sentence that are answers.
fn said_words(sentence: &str) -> Words {
    let known = [NEVER, BACKOFF, HINT, AS, "none", "unknown", "happened"];
    let said = |word: &&str| sentence.split([' ', ',']).any(|said| said == *word);
    known.into_iter().filter(said).collect()
}

/// Returns the words for the possible values of an argument.
fn words(argument: &Expr, word: fn(&str) -> Option<&'static str>) -> Words {
    match argument {
        Expr::Path(path) => {
            let value = path.path.segments.last().map(|segment| segment.ident.to_string());
            [value.and_then(|value| word(&value)).unwrap_or(AS)].into()
        }
        Expr::Call(call) => words(&call.func, word),
        Expr::If(choice) => {
            let branch = |block: &Block| match &*block.stmts {
                [Stmt::Expr(value, None)] => words(value, word),
                _ => [AS].into(),
            };
            let mut both = branch(&choice.then_branch);
            if let Some((_, other)) = &choice.else_branch {
                both.extend(match &**other {
                    Expr::Block(block) => branch(&block.block),
                    other => words(other, word),
                });
            }
            both
        }
        _ => [AS].into(),
    }
}

fn retry_word(value: &str) -> Option<&'static str> {
    match value {
        "Never" => Some(NEVER),
        "Backoff" => Some(BACKOFF),
        "After" => Some(HINT),
        _ => None,
    }
}

fn effect_word(value: &str) -> Option<&'static str> {
    match value {
        "None" => Some("none"),
        "Unknown" => Some("unknown"),
        "Happened" => Some("happened"),
        _ => None,
    }
}

/// Returns the last name of a path whose second to last name is `parent`.
fn last(path: &Path, parent: &str) -> Option<String> {
    let names: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    match &*names {
        [.., before, name] if before == parent => Some(name.clone()),
        _ => None,
    }
}

/// Returns the name of a code's constant.
fn code(argument: &Expr) -> Option<String> {
    match argument {
        Expr::Path(path) => last(&path.path, "code"),
        _ => None,
    }
}

/// Returns whether a pattern matches this variant.
pub(super) fn names(pattern: &Pat, variant: &str) -> bool {
    match pattern {
        Pat::Guard(guarded) => names(&guarded.pat, variant),
        Pat::Or(either) => either.cases.iter().any(|case| names(case, variant)),
        Pat::Path(path) => is_last(&path.path, variant),
        Pat::Struct(fields) => is_last(&fields.path, variant),
        Pat::TupleStruct(fields) => is_last(&fields.path, variant),
        _ => false,
    }
}

/// Returns whether a pattern matches anything.
pub(super) fn is_for_all(pattern: &Pat) -> bool {
    match pattern {
        Pat::Guard(guarded) => is_for_all(&guarded.pat),
        Pat::Ident(_) | Pat::Wild(_) => true,
        Pat::Or(either) => either.cases.iter().any(is_for_all),
        _ => false,
    }
}

fn is_last(path: &Path, name: &str) -> bool {
    path.segments.last().is_some_and(|segment| segment.ident == name)
}
