//! `cargo xtask events`: `docs/events.md`, generated from the payloads of events.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{
    Attribute, Expr, Fields, GenericArgument, Ident, Item, ItemMacro, Lit, LitStr, Meta,
    PathArguments, Token, Type, Visibility, braced,
};

use crate::error::XtaskError;
use crate::page;

const PAGE: &str = "docs/events.md";
/// Sources of the events and their payloads.
const SOURCE: &str = "crates/layer0/src";

const INTRO: &str = "\
<!-- Written by `cargo xtask events` from crates/layer0/src/event/payload; change it there. -->

# Events

A run is its events, numbered from 1 without a gap. Each is an envelope: `run`, `seq`, `at` (RFC 3339, in
milliseconds, UTC), `type`, `actor`, `caused_by` (a `seq`, or null), `schema`, `data`, and `salt` and `hash`,
which [the record's format](record-format.md) explains. What follows is `data`, by `type`. Whatever has a
`reason` has a code of [the catalogue](errors.md) there, and a `message` for people beside it.

`backstop trace RUN --json` prints them one a line, `backstop run --events` while they become durable.
";

/// Writes the page.
///
/// # Errors
///
/// [`XtaskError::File`], [`XtaskError::Syntax`].
pub(crate) fn write(root: &Path) -> Result<(), XtaskError> {
    page::write(root, PAGE, &text(&Catalogue::read(root)?))
}

/// Compares the page with the payloads; changes nothing.
///
/// # Errors
///
/// [`XtaskError::PageStale`] if they differ, [`XtaskError::File`], [`XtaskError::Syntax`].
pub(crate) fn check(root: &Path) -> Result<(), XtaskError> {
    page::check(root, PAGE, "cargo xtask events", &text(&Catalogue::read(root)?))
}

/// Event types in order, and the structs of the crate by name.
#[derive(Default)]
struct Catalogue {
    events: Vec<(String, String)>,
    structs: BTreeMap<String, Described>,
    /// Words of enums, with a flag for other words.
    words: BTreeMap<String, (Vec<String>, bool)>,
    /// Type of the only field of a newtype.
    wraps: BTreeMap<String, Type>,
}

/// A struct with named fields.
struct Described {
    docs: String,
    fields: Vec<Field>,
}

struct Field {
    name: String,
    docs: String,
    kind: Type,
}

impl Catalogue {
    fn read(root: &Path) -> Result<Self, XtaskError> {
        let mut paths = Vec::new();
        page::files_below(&root.join(SOURCE), &mut paths)?;
        paths.sort();
        let mut catalogue = Self::default();
        for path in paths {
            let text = page::read(&path)?;
            let file = syn::parse_file(&text);
            let taken = file
                .and_then(|file| file.items.into_iter().try_for_each(|item| catalogue.take(item)));
            taken.map_err(|source| XtaskError::Syntax { path, source })?;
        }
        Ok(catalogue)
    }

    fn take(&mut self, item: Item) -> syn::Result<()> {
        match item {
            Item::Macro(item) if item.mac.path.is_ident("event_kinds") => {
                self.events = events.parse2(item.mac.tokens)?;
            }
            Item::Macro(ItemMacro { mac, .. }) if mac.path.is_ident("payload") => {
                let Payload { name, described } = syn::parse2(mac.tokens)?;
                self.structs.insert(name, described);
            }
            Item::Enum(item) => {
                let (plain, other): (Vec<_>, Vec<_>) =
                    item.variants.iter().partition(|variant| variant.fields.is_empty());
                let words = plain.iter().map(|variant| snake_case(&variant.ident.to_string()));
                let words = (words.collect(), !other.is_empty());
                self.words.insert(item.ident.to_string(), words);
            }
            Item::Struct(item) => match item.fields {
                Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                    let inner = fields.unnamed.into_iter().map(|field| field.ty);
                    self.wraps.extend(inner.map(|inner| (item.ident.to_string(), inner)));
                }
                Fields::Named(named) => {
                    let public = named.named.into_iter();
                    let public = public.filter(|field| matches!(field.vis, Visibility::Public(_)));
                    let fields = public
                        .filter_map(|field| Some(Field::new(&field.attrs, &field.ident?, field.ty)))
                        .collect();
                    let described = Described { docs: docs(&item.attrs), fields };
                    self.structs.insert(item.ident.to_string(), described);
                }
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }
}

impl Field {
    fn new(attributes: &[Attribute], name: &Ident, kind: Type) -> Self {
        let name = renamed(attributes).unwrap_or_else(|| name.unraw().to_string());
        Self { name, docs: docs(attributes), kind }
    }
}

/// Parses `RunStarted "run.started" …`.
fn events(input: ParseStream<'_>) -> syn::Result<Vec<(String, String)>> {
    let mut events = Vec::new();
    while !input.is_empty() {
        let name: Ident = input.parse()?;
        let event: LitStr = input.parse()?;
        events.push((event.value(), name.to_string()));
    }
    Ok(events)
}

/// The content of `payload!`.
struct Payload {
    name: String,
    described: Described,
}

impl Parse for Payload {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let docs = docs(&input.call(Attribute::parse_outer)?);
        let name: Ident = input.parse()?;
        let inside;
        braced!(inside in input);
        let mut fields = Vec::new();
        while !inside.is_empty() {
            let attributes = inside.call(Attribute::parse_outer)?;
            let field: Ident = inside.parse()?;
            inside.parse::<Token![:]>()?;
            fields.push(Field::new(&attributes, &field, inside.parse()?));
            inside.parse::<Option<Token![,]>>()?;
        }
        Ok(Self { name: name.to_string(), described: Described { docs, fields } })
    }
}

fn docs(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// Returns the JSON name of a field that serde renames.
fn renamed(attributes: &[Attribute]) -> Option<String> {
    let mut name = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let _not_about_names = attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("rename") {
                name = Some(meta.value()?.parse::<LitStr>()?.value());
            } else if meta.input.peek(Token![=]) {
                meta.value()?.parse::<TokenStream>()?;
            }
            Ok(())
        });
    }
    name
}

/// Formats the events as Markdown: one heading per event, one row per field, then the objects inside of events.
fn text(catalogue: &Catalogue) -> String {
    let mut page = String::from(INTRO);
    let mut inside = BTreeSet::new();
    for (event, name) in &catalogue.events {
        let _infallible = write!(page, "\n## `{event}`\n\n");
        section(&mut page, catalogue.structs.get(name), catalogue, &mut inside);
    }
    page.push_str("\n# Objects inside of events\n");
    let mut written = BTreeSet::new();
    while let Some(name) = inside.iter().find(|name| !written.contains(*name)).cloned() {
        let _infallible = write!(page, "\n## {name}\n\n");
        section(&mut page, catalogue.structs.get(&name), catalogue, &mut inside);
        written.insert(name);
    }
    page
}

fn section(
    page: &mut String,
    described: Option<&Described>,
    catalogue: &Catalogue,
    inside: &mut BTreeSet<String>,
) {
    let Some(Described { docs, fields }) = described else { return };
    let _infallible = writeln!(page, "{}", cell(docs));
    if fields.is_empty() {
        return;
    }
    page.push_str("\n| field | JSON | what it says |\n| --- | --- | --- |\n");
    for Field { name, docs, kind } in fields {
        let json = json(kind, catalogue, inside);
        let _infallible = writeln!(page, "| `{name}` | {json} | {} |", cell(docs));
    }
}

/// Returns docs in a form for one table cell, without rustdoc links.
fn cell(docs: &str) -> String {
    docs.replace('|', "\\|").replace("[`", "`").replace("`]", "`")
}

/// Returns the JSON type of a type; adds objects with a section of their own to `inside`.
fn json(kind: &Type, catalogue: &Catalogue, inside: &mut BTreeSet<String>) -> String {
    let Type::Path(path) = kind else {
        return match kind {
            Type::Slice(slice) => format!("array of {}", json(&slice.elem, catalogue, inside)),
            other => other.to_token_stream().to_string(),
        };
    };
    let Some(last) = path.path.segments.last() else { return String::new() };
    let arguments: Vec<&Type> = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => arguments.args.iter(),
        _ => return named(&last.ident.to_string(), catalogue, inside),
    }
    .filter_map(|argument| match argument {
        GenericArgument::Type(kind) => Some(kind),
        _ => None,
    })
    .collect();
    match (last.ident.to_string().as_str(), arguments.as_slice()) {
        ("Option", [kind]) => format!("{} or null", json(kind, catalogue, inside)),
        ("Vec", [kind]) => format!("array of {}", json(kind, catalogue, inside)),
        ("Arc" | "Box", [kind]) => json(kind, catalogue, inside),
        ("BTreeMap", [_, kind]) => format!("object of {}", json(kind, catalogue, inside)),
        (other, _) => named(other, catalogue, inside),
    }
}

fn named(name: &str, catalogue: &Catalogue, inside: &mut BTreeSet<String>) -> String {
    match name {
        "str" | "String" => "string".to_owned(),
        "bool" => "boolean".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" | "i64" | "f64" | "Number" => "number".to_owned(),
        "Code" => "code".to_owned(),
        "Timestamp" => "time".to_owned(),
        "Hash" => "64 hex digits".to_owned(),
        "JsonText" | "Value" | "RawValue" => "any JSON".to_owned(),
        "Transcript" => "array of Message".to_owned(),
        id if id.ends_with("Id") => "string".to_owned(),
        _ if catalogue.structs.get(name).is_some_and(|found| !found.fields.is_empty()) => {
            inside.insert(name.to_owned());
            format!("[{name}](#{})", name.to_lowercase())
        }
        other => match (catalogue.words.get(other), catalogue.wraps.get(other)) {
            (Some((words, others)), _) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                let others = if *others { ", or another word" } else { "" };
                words.join(", ") + others
            }
            (None, Some(inner)) => json(inner, catalogue, inside),
            (None, None) => other.to_owned(),
        },
    }
}

/// Converts `BudgetExhausted` to `budget_exhausted`.
fn snake_case(name: &str) -> String {
    let mut word = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(source: &str) -> String {
        let mut catalogue = Catalogue::default();
        for item in syn::parse_file(source).unwrap().items {
            catalogue.take(item).unwrap();
        }
        text(&catalogue)
    }

    #[test]
    fn every_field_of_an_event_has_a_row() {
        let page = page_of(
            r#"
            event_kinds! { Sent "mail.sent" }
            payload! {
                /// A letter | was sent.
                Sent {
                    /// To whom.
                    to: Arc<str>,
                    /// What was in it.
                    #[serde(default, rename = "parts")]
                    contents: Option<Box<Part>>,
                    /// How often.
                    counts: Vec<u32>,
                    /// How it went.
                    end: End,
                    /// Who may read it.
                    readers: Readers,
                }
            }
            pub enum End { Arrived, SentBack, Other(Arc<str>) }
            pub struct Readers(Arc<[Arc<str>]>);
            /// One of its parts.
            pub struct Part {
                /// Its text; see [`Sent`].
                pub text: Arc<str>,
                hidden: u32,
            }
            "#,
        );
        for row in [
            "## `mail.sent`\n\nA letter \\| was sent.\n",
            "| `to` | string | To whom. |",
            "| `parts` | [Part](#part) or null | What was in it. |",
            "| `counts` | array of number | How often. |",
            "| `end` | `arrived`, `sent_back`, or another word | How it went. |",
            "| `readers` | array of string | Who may read it. |",
            "## Part\n\nOne of its parts.\n",
            "| `text` | string | Its text; see `Sent`. |",
        ] {
            assert!(page.contains(row), "{row}\n{page}");
        }
        assert!(!page.contains("hidden"), "{page}");
    }
}
