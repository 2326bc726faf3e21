//! The facts of failures, read from the source: the rows of `facts`, and the docs of their variants.

mod row;
mod unstated;

use std::collections::BTreeMap;
use std::path::Path;

use syn::{Attribute, Expr, ImplItem, Item, ItemImpl, Lit, Meta, Stmt, Type};

use crate::error::XtaskError;
use crate::page;

pub(crate) use row::Row;

/// The facts of all failures of the workspace.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Facts by the name of the code's constant.
    pub(crate) by_code: BTreeMap<String, Row>,
    /// Facts by crate, type and variant.
    pub(crate) by_variant: BTreeMap<String, Row>,
    /// Docs that differ from the row, and public errors without a row.
    pub(crate) drifted: Vec<String>,
}

/// Reads the failures of all crates.
///
/// # Errors
///
/// [`XtaskError::File`], [`XtaskError::Syntax`].
pub(crate) fn read(root: &Path) -> Result<Facts, XtaskError> {
    let mut paths = Vec::new();
    page::files_below(&root.join("crates"), &mut paths)?;
    paths.sort();
    let mut crates = BTreeMap::<_, Vec<Item>>::new();
    for path in paths {
        let inside = path.strip_prefix(root.join("crates")).unwrap_or(&path);
        let mut parts = inside.iter();
        let krate = parts.next().map(|name| name.to_string_lossy().into_owned());
        let is_library = parts.next().is_some_and(|folder| folder == "src");
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        // Failures of tests need no docs.
        if !is_rust || !is_library || path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        let text = page::read(&path)?;
        let file = syn::parse_file(&text).map_err(|source| XtaskError::Syntax { path, source })?;
        crates.entry(krate.unwrap_or_default()).or_default().extend(file.items);
    }
    Ok(of_crates(&crates))
}

fn of_crates(crates: &BTreeMap<String, Vec<Item>>) -> Facts {
    let mut facts = Facts::default();
    for (krate, items) in crates {
        let types: BTreeMap<String, Documented> = items.iter().filter_map(documented).collect();
        for item in items {
            if let Item::Impl(item) = item
                && let Some((name, body)) = failure(item)
            {
                facts.compare(&format!("{krate}::{name}"), body, types.get(&name));
            }
        }
        facts.drifted.extend(unstated::find(krate, items));
    }
    facts
}

/// The docs of a type, and those of its variants by name.
#[derive(Debug)]
struct Documented {
    docs: String,
    variants: Vec<(String, String)>,
}

fn documented(item: &Item) -> Option<(String, Documented)> {
    match item {
        Item::Enum(item) => {
            let variants = item.variants.iter();
            let variants = variants.map(|it| (it.ident.to_string(), docs(&it.attrs))).collect();
            Some((item.ident.to_string(), Documented { docs: docs(&item.attrs), variants }))
        }
        Item::Struct(item) => {
            let documented = Documented { docs: docs(&item.attrs), variants: Vec::new() };
            Some((item.ident.to_string(), documented))
        }
        _ => None,
    }
}

/// Returns the type and the body of its `facts`, if the item implements `Failure`.
fn failure(item: &ItemImpl) -> Option<(String, &[Stmt])> {
    let (implemented, _) = item.trait_.as_ref()?;
    let Type::Path(path) = &*item.self_ty else { return None };
    let name = path.path.segments.last()?.ident.to_string();
    if implemented.segments.last()?.ident != "Failure" {
        return None;
    }
    item.items.iter().find_map(|item| match item {
        ImplItem::Fn(function) if function.sig.ident == "facts" => {
            Some((name.clone(), &*function.block.stmts))
        }
        _ => None,
    })
}

impl Facts {
    /// Compares the facts of a type with its docs: for each variant of an enum, else for the whole type.
    fn compare(&mut self, name: &str, body: &[Stmt], documented: Option<&Documented>) {
        let Some(documented) = documented else {
            return self.drifted.push(format!("`{name}` is declared elsewhere"));
        };
        let arms = match body {
            [Stmt::Expr(Expr::Match(rows), None)] => &*rows.arms,
            _ => &[],
        };
        if arms.is_empty() || documented.variants.is_empty() {
            let row = Row::all(Row::of_block(body));
            for (variant, _) in &documented.variants {
                self.by_variant.insert(format!("{name}::{variant}"), row.clone());
            }
            return self.hold(name, &documented.docs, vec![row]);
        }
        if arms.iter().any(|arm| row::is_for_all(&arm.pat)) {
            self.drifted.push(format!("`{name}` has a row for variants that it does not name"));
        }
        for (variant, docs) in &documented.variants {
            let rows = arms.iter().filter(|arm| row::names(&arm.pat, variant));
            let rows: Vec<_> = rows.flat_map(|arm| Row::of(&arm.body)).collect();
            self.hold(&format!("{name}::{variant}"), docs, rows);
        }
    }

    fn hold(&mut self, name: &str, docs: &str, rows: Vec<Row>) {
        let row = Row::all(rows.iter().cloned());
        if let Err(why) = row.agrees_with(docs) {
            self.drifted.push(format!("`{name}` {why}"));
        }
        self.by_variant.insert(name.to_owned(), row);
        for row in rows {
            for code in &row.codes {
                let known = self.by_code.entry(code.clone()).or_default();
                *known = Row::all([std::mem::take(known), row.clone()]);
            }
        }
    }
}

/// Returns the doc comment, its lines joined by spaces.
fn docs(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(text) => match &text.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drifted(source: &str) -> Vec<String> {
        let items = syn::parse_file(source).unwrap().items;
        of_crates(&[("a".to_owned(), items)].into()).drifted
    }

    const ENUM: &str = "
        enum E {
            /// Retry: never. Effect: none, unknown
            /// while it runs.
            Two,
            /// Retry: as the error inside says. Effect: as it says.
            Inner(E),
        }";

    fn with_rows(rows: &str) -> String {
        format!(
            "{ENUM} impl Failure for E {{ fn facts(&self) -> Facts {{ match self {{ {rows} }} }} }}"
        )
    }

    /// Spec: E6, E9. A new variant is a new line.
    #[test]
    fn every_variant_states_its_facts() {
        let facts = read(crate::root()).unwrap();
        let lines: Vec<String> =
            facts.by_variant.iter().map(|(name, row)| format!("{name} | {row}")).collect();
        assert!(lines.len() > 250, "{}", lines.len());
        insta::assert_snapshot!(lines.join("\n"));
    }

    /// Spec: E9
    #[test]
    fn public_errors_without_facts_are_named() {
        let public = "#[derive(Debug, thiserror::Error)] pub enum Bare { A }
            pub struct Written; impl std::error::Error for Written {}";
        assert_eq!(drifted(public), ["`a::Bare` states no facts", "`a::Written` states no facts"]);
        let inside = "#[derive(Error)] pub(crate) struct Inside; pub struct NoError;";
        assert_eq!(drifted(inside), Vec::<String>::new());
    }

    #[test]
    fn docs_that_say_what_the_rows_say_pass() {
        let rows = "Self::Two if x => Facts::never(code::A, Effect::None),
            Self::Two => Facts::never(code::A, Effect::Unknown),
            Self::Inner(e) => e.facts(),";
        assert_eq!(drifted(&with_rows(rows)), Vec::<String>::new());
    }

    #[test]
    fn docs_that_drifted_are_named() {
        let cases = [
            (
                "Self::Two => Facts::backoff(code::A, Effect::None), Self::Inner(e) => e.facts(),",
                vec!["`a::E::Two` says `Retry: never`, its row backoff"],
            ),
            (
                "Self::Two => Facts::never(code::A, Effect::None),",
                vec![
                    "`a::E::Two` says `Effect: none, unknown while it runs`, its row none",
                    "`a::E::Inner` says `Retry: as the error inside says`, its row nothing",
                ],
            ),
            (
                "Self::Two if x => Facts::never(code::A, Effect::None),
                Self::Two => Facts::never(code::A, Effect::Unknown),
                e => e.facts(),",
                vec![
                    "`a::E` has a row for variants that it does not name",
                    "`a::E::Inner` says `Retry: as the error inside says`, its row nothing",
                ],
            ),
            (
                "Self::Two | Self::Inner(_) => Facts::never(code::A, Effect::None)
                    .with_effect(if x { Effect::None } else { Effect::Unknown }),",
                vec!["`a::E::Inner` says `Retry: as the error inside says`, its row never"],
            ),
        ];
        for (rows, expected) in cases {
            assert_eq!(drifted(&with_rows(rows)), expected, "{rows}");
        }
        let undocumented = "struct S; impl Failure for S {
            fn facts(&self) -> Facts { Facts::never(code::A, Effect::None) } }";
        assert_eq!(drifted(undocumented), ["`a::S` has no `Retry: …. Effect: ….` in its docs"]);
    }
}
