//! Checks of JSON that is carried as text, in places where serde cannot carry it.
//!
//! A raw value passes through serde under a private key of `serde_json`. A derived `Serialize` that flattens it, or
//! that writes it as the content of a tagged variant, sends that key to others. A derived `Deserialize` that buffers it
//! (`flatten`, `tag`, `untagged`) fails, and reads its numbers as floats. No compiler and no test that reads with
//! `serde_json` notices the first failure.

use std::collections::BTreeSet;

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprPath, Field, Fields, GenericArgument, Item, ItemEnum, ItemStruct, Local,
    Meta, Pat, PathArguments, Token, Type,
};

use crate::tidy::finding::Finding;
use crate::tidy::syntax::{attributes, is_for_tests};
use crate::tidy::workspace::SourceFile;

/// Types that are JSON text.
const RAW: [&str; 2] = ["JsonText", "RawValue"];

/// Pointers and options, which serde writes as their content.
const POINTERS: [&str; 5] = ["Arc", "Box", "Cow", "Option", "Rc"];

/// Functions that read a whole text.
const READERS: [&str; 3] = ["from_reader", "from_slice", "from_str"];

/// Code that reads trees without special keys.
const HOME: &str = "crates/layer0/src/json_text";

/// Finds raw JSON in places where serde wraps it, and trees that `serde_json` reads from text of others.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut definitions = Definitions::default();
    files.iter().for_each(|file| definitions.visit_file(&file.syntax));
    let direct = closure(&definitions.all, |item, known| item.is_raw(known));
    let holding = closure(&definitions.all, |item, known| item.holds_raw(known));
    let mut found = Vec::new();
    for file in
        files.iter().filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/"))
    {
        let mut places =
            Places { path: &file.path, direct: &direct, holding: &holding, found: vec![] };
        places.visit_file(&file.syntax);
        found.append(&mut places.found);
    }
    found
}

/// Returns the names of types that match, given those that are known to match.
fn closure(
    all: &[Definition],
    matches: impl Fn(&Definition, &BTreeSet<String>) -> bool,
) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = RAW.iter().map(|&name| name.to_owned()).collect();
    loop {
        let before = known.len();
        for item in all {
            if matches(item, &known) {
                known.insert(item.name.clone());
            }
        }
        if known.len() == before {
            return known;
        }
    }
}

/// A type that derives a trait of serde.
struct Definition {
    name: String,
    /// The fields of each variant; one list for a struct.
    variants: Vec<Fields>,
    is_transparent: bool,
}

impl Definition {
    /// Returns whether serde writes it as raw JSON, without anything around it.
    fn is_raw(&self, known: &BTreeSet<String>) -> bool {
        self.is_transparent
            && self.variants.iter().any(|fields| match fields {
                Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                    is_raw(&fields.unnamed[0].ty, known)
                }
                _ => false,
            })
    }

    fn holds_raw(&self, known: &BTreeSet<String>) -> bool {
        self.variants.iter().flatten().any(|field| holds_raw(&field.ty, known))
    }
}

#[derive(Default)]
struct Definitions {
    all: Vec<Definition>,
}

impl<'ast> Visit<'ast> for Definitions {
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        if derives(&item.attrs, "Serialize") || derives(&item.attrs, "Deserialize") {
            let variants = vec![item.fields.clone()];
            self.all.push(Definition {
                name: item.ident.to_string(),
                variants,
                is_transparent: true,
            });
        }
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        if derives(&item.attrs, "Serialize") || derives(&item.attrs, "Deserialize") {
            let variants: Vec<Fields> = item.variants.iter().map(|it| it.fields.clone()).collect();
            let has_bare = item.variants.iter().any(|it| has_serde(&it.attrs, "untagged"));
            let is_transparent = has_bare || has_serde(&item.attrs, "untagged");
            self.all.push(Definition { name: item.ident.to_string(), variants, is_transparent });
        }
    }
}

/// Returns whether a type is raw JSON, possibly behind pointers.
fn is_raw(ty: &Type, known: &BTreeSet<String>) -> bool {
    match ty {
        Type::Reference(reference) => is_raw(&reference.elem, known),
        Type::Path(path) => path.path.segments.last().is_some_and(|segment| {
            let name = segment.ident.to_string();
            known.contains(&name)
                || POINTERS.contains(&name.as_str())
                    && arguments(&segment.arguments).any(|inner| is_raw(inner, known))
        }),
        _ => false,
    }
}

/// Returns whether a type names a type that holds raw JSON.
fn holds_raw(ty: &Type, known: &BTreeSet<String>) -> bool {
    struct Names<'k>(&'k BTreeSet<String>, bool);
    impl<'ast> Visit<'ast> for Names<'_> {
        fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
            self.1 |= self.0.contains(&segment.ident.to_string());
            visit::visit_path_segment(self, segment);
        }
    }
    let mut names = Names(known, false);
    names.visit_type(ty);
    names.1
}

fn arguments(arguments: &PathArguments) -> impl Iterator<Item = &Type> {
    let list = match arguments {
        PathArguments::AngleBracketed(list) => Some(&list.args),
        _ => None,
    };
    list.into_iter().flatten().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

fn derives(attrs: &[Attribute], name: &str) -> bool {
    metas(attrs, "derive")
        .any(|meta| meta.path().segments.last().is_some_and(|it| it.ident == name))
}

fn has_serde(attrs: &[Attribute], key: &str) -> bool {
    metas(attrs, "serde").any(|meta| meta.path().is_ident(key))
}

fn metas<'a>(attrs: &'a [Attribute], list: &'a str) -> impl Iterator<Item = Meta> + 'a {
    let of_list = attrs.iter().filter(move |attribute| attribute.path().is_ident(list));
    of_list.flat_map(|attribute| {
        attribute
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .unwrap_or_default()
    })
}

/// The places of one file where raw JSON loses its form.
struct Places<'p> {
    path: &'p str,
    direct: &'p BTreeSet<String>,
    holding: &'p BTreeSet<String>,
    found: Vec<Finding>,
}

impl Places<'_> {
    fn report(&mut self, place: &impl Spanned, what: &str) {
        self.found.push(Finding::error(self.path, place.span().start().line, what));
    }

    fn check_fields(&mut self, attrs: &[Attribute], fields: &Fields) {
        for field in fields.iter().filter(|field| has_serde(&field.attrs, "flatten")) {
            self.check_flat(attrs, field);
        }
    }

    fn check_flat(&mut self, attrs: &[Attribute], field: &Field) {
        if derives(attrs, "Serialize") && is_raw(&field.ty, self.direct) {
            self.report(
                field,
                "flattens raw JSON, which is written under a key of serde_json's own",
            );
        }
        if derives(attrs, "Deserialize") && holds_raw(&field.ty, self.holding) {
            self.report(field, "flattens what holds raw JSON, which cannot be read so");
        }
    }
}

impl<'ast> Visit<'ast> for Places<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.check_fields(&item.attrs, &item.fields);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        let is_tagged = has_serde(&item.attrs, "tag") && !has_serde(&item.attrs, "content");
        let is_untagged = has_serde(&item.attrs, "untagged");
        for variant in &item.variants {
            self.check_fields(&item.attrs, &variant.fields);
            let is_bare = is_untagged || has_serde(&variant.attrs, "untagged");
            for field in &variant.fields {
                let is_newtype = matches!(variant.fields, Fields::Unnamed(_));
                if is_tagged
                    && is_newtype
                    && !is_bare
                    && derives(&item.attrs, "Serialize")
                    && is_raw(&field.ty, self.direct)
                {
                    self.report(
                        field,
                        "tags raw JSON, which is written under a key of serde_json's own",
                    );
                }
                if (is_tagged || is_bare)
                    && derives(&item.attrs, "Deserialize")
                    && holds_raw(&field.ty, self.holding)
                {
                    self.report(
                        field,
                        "holds raw JSON in an enum that serde buffers; use `read_tagged`",
                    );
                }
            }
        }
    }

    fn visit_expr_path(&mut self, expr: &'ast ExprPath) {
        let last = expr.path.segments.last();
        if let Some(segment) = last.filter(|it| READERS.iter().any(|name| it.ident == name))
            && arguments(&segment.arguments).any(is_tree)
            && !self.path.starts_with(HOME)
        {
            self.report(expr, "reads a tree by serde_json, which takes some keys for its own; use `layer0::read_value`");
        }
        visit::visit_expr_path(self, expr);
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if let (Pat::Type(pat), Some(init)) = (&local.pat, &local.init)
            && is_tree(&pat.ty)
            && is_read(&init.expr)
            && !self.path.starts_with(HOME)
        {
            self.report(local, "reads a tree by serde_json, which takes some keys for its own; use `layer0::read_value`");
        }
        visit::visit_local(self, local);
    }
}

/// Returns whether a type is a tree of JSON.
fn is_tree(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|it| it.ident == "Value"))
}

/// Returns whether an expression calls one of the readers, regardless of what follows.
fn is_read(expr: &Expr) -> bool {
    match expr {
        Expr::Call(call) => matches!(&*call.func, Expr::Path(path)
            if path.path.segments.last().is_some_and(|it| it.arguments.is_none() && READERS.iter().any(|name| it.ident == name))),
        Expr::MethodCall(call) => is_read(&call.receiver),
        Expr::Try(inner) => is_read(&inner.expr),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_one(text: &str, lines: &[usize]) {
        let file = SourceFile::new("crates/a/src/b.rs".to_owned(), text.to_owned()).unwrap();
        let found: Vec<usize> = check(&[file]).iter().map(|finding| finding.line).collect();
        assert_eq!(found, lines, "{text}");
    }

    #[test]
    fn raw_json_is_not_written_flat() {
        check_one("#[derive(Serialize)]\nstruct A {\n#[serde(flatten)]\nb: JsonText }", &[3]);
        check_one(
            "#[derive(Serialize)]\nstruct A {\n#[serde(flatten)]\nb: Option<Box<RawValue>> }",
            &[3],
        );
        let block = "#[derive(Serialize)]\n#[serde(tag = \"t\")]\nenum B { X { a: JsonText }, #[serde(untagged)] K(JsonText) }\n";
        check_one(block, &[]);
        check_one(
            &format!(
                "{block}#[derive(Serialize)]\nstruct A<'a> {{\n#[serde(flatten)]\nb: &'a B }}"
            ),
            &[6],
        );
        check_one("#[derive(Serialize)]\n#[serde(tag = \"t\")]\nenum B {\nX(JsonText) }", &[4]);
        check_one(
            "#[derive(Serialize)]\nstruct C { j: JsonText }\n#[derive(Serialize)]\nstruct A { #[serde(flatten)] c: C }",
            &[],
        );
        check_one(
            "#[cfg(test)]\nmod t { #[derive(Serialize)]\nstruct A { #[serde(flatten)] b: JsonText } }",
            &[],
        );
    }

    #[test]
    fn raw_json_is_not_read_buffered() {
        check_one(
            "#[derive(Deserialize)]\n#[serde(tag = \"t\")]\nenum B {\nX { a: Vec<JsonText> } }",
            &[4],
        );
        check_one(
            "#[derive(Deserialize)]\nstruct C { j: JsonText }\n#[derive(Deserialize)]\n#[serde(untagged)]\nenum B {\nX(C) }",
            &[6],
        );
        check_one("#[derive(Deserialize)]\n#[serde(untagged)]\nenum B { X(String) }", &[]);
        check_one(
            "#[derive(Deserialize)]\n#[serde(remote = \"Self\")]\nenum B { X { a: JsonText } }",
            &[],
        );
    }

    #[test]
    fn trees_are_not_read_by_serde_json() {
        check_one("fn f() {\nserde_json::from_str::<Value>(t); }", &[2]);
        check_one("fn f() {\nlet v: serde_json::Value = from_slice(t).unwrap(); }", &[2]);
        check_one("fn f() { let v: JsonText = from_slice(t).unwrap(); }", &[]);
    }
}
