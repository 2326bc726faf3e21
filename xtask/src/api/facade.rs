//! Compares the names that the facade shows with those in the signatures of its crates.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

/// The crates whose types a program of the facade uses, each with its module of the facade, if any.
const CRATES: [(&str, Option<&str>); 18] = [
    ("clock", Some("clock")),
    ("config", Some("config")),
    ("error-store", Some("error_store")),
    ("event-log", Some("event_log")),
    ("layer0", Some("layer0")),
    ("orchestrator", Some("orchestrator")),
    ("provider", Some("provider")),
    ("provider-anthropic", Some("anthropic")),
    ("provider-bedrock", Some("bedrock")),
    ("provider-gemini", Some("gemini")),
    ("provider-http", Some("provider_http")),
    ("provider-ollama", Some("ollama")),
    ("provider-openai", Some("openai")),
    ("react", Some("react")),
    ("react-machine", None),
    ("retry", Some("retry")),
    ("store-sqlite", Some("store_sqlite")),
    ("tool", Some("tool")),
];

/// Types that only authors of provider adapters use.
const NOT_NAMED: [&str; 1] = ["Phrase"];

/// Returns the types in signatures that are neither at the facade's root nor one module below it.
pub(super) fn hidden_names(listings: &BTreeMap<String, String>) -> Vec<String> {
    let listing = |name: &str| listings.get(name).map(String::as_str).unwrap_or_default();
    let facade = listing("backstop");
    let root: BTreeSet<&str> =
        matches(r"(?m)^pub (?:use|\w+) backstop::(\w+)$", facade).into_iter().collect();
    let own = matches(r"(?m)^(?:#\[.*\] )?pub (?:enum|struct|trait|fn) backstop::(\w+)", facade);
    let root: BTreeSet<&str> = root.into_iter().chain(own).collect();
    let listings: Vec<(&str, Option<&str>)> =
        CRATES.iter().map(|(name, module)| (listing(name), *module)).collect();

    let mut below: BTreeSet<&str> = BTreeSet::new();
    let item = r"(?m)^(?:#\[.*\] )?pub (?:use|enum|struct|trait|type|union) ";
    for (listing, module) in &listings {
        // A crate's own modules are below the facade if the facade shows them.
        let modules = matches(r"(?m)^pub mod \w+::(\w+)$", listing);
        let shown = modules.into_iter().filter(|module| root.contains(module));
        for module in shown {
            below.extend(matches(&format!(r"{item}\w+::{module}::(\w+)"), listing));
        }
        if module.is_some_and(|module| root.contains(module)) {
            below.extend(matches(&format!(r"{item}\w+::([A-Z]\w*)"), listing));
        }
    }

    // Types that no crate shows cannot be named: the future of a service, a stream that is read through a trait.
    let all = format!(r"{item}(?:\w+::)+([A-Z]\w*)");
    let shown = listings.iter().flat_map(|(listing, _)| matches(&all, listing));
    let shown: BTreeSet<&str> = shown.collect();
    let mut hidden = BTreeSet::new();
    for (listing, _) in listings.iter().filter(|(_, module)| module.is_some()) {
        let named = matches(r"\b(?:layer0|backstop_\w+)::(?:[a-z_0-9]+::)*([A-Z]\w*)", listing);
        let is_type = |name: &&str| name.contains(|c: char| c.is_ascii_lowercase());
        hidden.extend(named.into_iter().filter(is_type).filter(|name| {
            shown.contains(name)
                && !root.contains(name)
                && !below.contains(name)
                && !NOT_NAMED.contains(name)
        }));
    }
    hidden.into_iter().map(ToOwned::to_owned).collect()
}

fn matches<'t>(pattern: &str, text: &'t str) -> Vec<&'t str> {
    let pattern = Regex::new(pattern).expect("the patterns are constants");
    let found = pattern.captures_iter(text).filter_map(|found| found.get(1));
    found.map(|found| found.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_in_signatures_are_shown_or_hidden() {
        let mut listings = BTreeMap::new();
        let tool = "pub mod backstop_tool\npub struct backstop_tool::Call\n\
                    pub struct backstop_tool::Answer\n\
                    pub fn backstop_tool::call(backstop_tool::Call) -> backstop_tool::Answer\n";
        listings.insert("tool".into(), tool.into());
        listings.insert("backstop".into(), "pub use backstop::Call\n".into());
        assert_eq!(hidden_names(&listings), ["Answer"]);

        let whole = "pub use backstop::Call\npub use backstop::tool\n";
        listings.insert("backstop".into(), whole.into());
        assert!(hidden_names(&listings).is_empty());
    }
}
