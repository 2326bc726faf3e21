//! Public error types without facts.

use std::collections::BTreeSet;

use syn::punctuated::Punctuated;
use syn::{Attribute, Ident, Item, ItemImpl, Path, Token, Type, Visibility};

/// Errors that are no failure of their own, and the reason.
const EXEMPT: &[(&str, &str)] = &[
    ("layer0::CircuitOpen", "the service around a breaker makes its own error from it"),
    ("layer0::ErrorText", "it has the texts of a failure whose facts are elsewhere"),
    ("layer0::TimedOut", "the service around a timeout makes its own error from it"),
    ("orchestrator::DivergencePoint", "it is a part of the text of `Diverged`"),
];

/// Crates that no application is built from.
const TOOLS: &[&str] = &["cli", "testkit"];

/// Finds the public error types of a crate that are no `Failure`.
pub(super) fn find(krate: &str, items: &[Item]) -> Vec<String> {
    if TOOLS.contains(&krate) {
        return Vec::new();
    }
    let failures: BTreeSet<String> =
        items.iter().filter_map(|item| find_implementor(item, "Failure")).collect();
    let mut errors: BTreeSet<String> =
        items.iter().filter_map(|item| find_implementor(item, "Error")).collect();
    let public: BTreeSet<String> = items.iter().filter_map(find_public).collect();
    errors.extend(items.iter().filter_map(find_derived));
    let unstated = errors.intersection(&public).filter(|name| !failures.contains(*name));
    let names = unstated.map(|name| format!("{krate}::{name}"));
    let is_exempt = |name: &String| EXEMPT.iter().any(|(exempt, _)| exempt == name);
    names.filter(|name| !is_exempt(name)).map(|name| format!("`{name}` states no facts")).collect()
}

/// Returns the type that an item implements a trait for.
fn find_implementor(item: &Item, name: &str) -> Option<String> {
    let Item::Impl(ItemImpl { trait_: Some((implemented, _)), self_ty, .. }) = item else {
        return None;
    };
    let Type::Path(path) = &**self_ty else { return None };
    is_last(implemented, name).then(|| path.path.segments.last().map(|it| it.ident.to_string()))?
}

/// Returns the name of a public type.
fn find_public(item: &Item) -> Option<String> {
    let (name, visibility) = match item {
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Struct(item) => (&item.ident, &item.vis),
        _ => return None,
    };
    matches!(visibility, Visibility::Public(_)).then(|| name.to_string())
}

/// Returns the name of a type that derives `Error`.
fn find_derived(item: &Item) -> Option<String> {
    let (name, attributes): (&Ident, &[Attribute]) = match item {
        Item::Enum(item) => (&item.ident, &item.attrs),
        Item::Struct(item) => (&item.ident, &item.attrs),
        _ => return None,
    };
    let derives_error = |attribute: &Attribute| {
        let paths = attribute.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated);
        attribute.path().is_ident("derive")
            && paths.is_ok_and(|paths| {
                paths.iter().any(|path| is_last(path, "Error") || is_last(path, "ThisError"))
            })
    };
    attributes.iter().any(derives_error).then(|| name.to_string())
}

fn is_last(path: &Path, name: &str) -> bool {
    path.segments.last().is_some_and(|segment| segment.ident == name)
}
