//! What a program of the facade has to name is at its root, or one module below it.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;

/// The crates whose types a program of the facade gets into its hands, and the module of the facade that each
/// one is; `None` for one that is none.
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

/// A table for those who adapt a provider.
const NOT_NAMED: [&str; 1] = ["Phrase"];

#[test]
fn names_are_one_module_deep() {
    let facade = listing("backstop");
    let root: BTreeSet<&str> =
        matches(r"(?m)^pub (?:use|\w+) backstop::(\w+)$", &facade).into_iter().collect();
    let own = matches(r"(?m)^(?:#\[.*\] )?pub (?:enum|struct|trait|fn) backstop::(\w+)", &facade);
    let root: BTreeSet<&str> = root.into_iter().chain(own).collect();
    let listings: Vec<(String, Option<&str>)> =
        CRATES.iter().map(|(name, module)| (listing(name), *module)).collect();

    let mut below: BTreeSet<&str> = BTreeSet::new();
    let item = r"(?m)^(?:#\[.*\] )?pub (?:use|enum|struct|trait|type|union) ";
    for (listing, module) in &listings {
        // Its own modules are below the facade where the facade shows them.
        let modules = matches(r"(?m)^pub mod \w+::(\w+)$", listing);
        let shown = modules.into_iter().filter(|module| root.contains(module));
        for module in shown {
            below.extend(matches(&format!(r"{item}\w+::{module}::(\w+)"), listing));
        }
        if module.is_some_and(|module| root.contains(module)) {
            below.extend(matches(&format!(r"{item}\w+::([A-Z]\w*)"), listing));
        }
    }

    // What no crate shows cannot be named: the future of a service, a stream that is read through a trait.
    let all = format!(r"{item}(?:\w+::)+([A-Z]\w*)");
    let shown = listings.iter().flat_map(|(listing, _)| matches(&all, listing));
    let shown: BTreeSet<&str> = shown.collect();
    let mut missing = BTreeSet::new();
    for (listing, _) in listings.iter().filter(|(_, module)| module.is_some()) {
        let named = matches(r"\b(?:layer0|backstop_\w+)::(?:[a-z_0-9]+::)*([A-Z]\w*)", listing);
        let is_type = |name: &&str| name.contains(|c: char| c.is_ascii_lowercase());
        missing.extend(named.into_iter().filter(is_type).filter(|name| {
            shown.contains(name)
                && !root.contains(name)
                && !below.contains(name)
                && !NOT_NAMED.contains(name)
        }));
    }
    assert!(missing.is_empty(), "the facade does not show {missing:?}");
}

fn listing(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/api/{name}.txt"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn matches<'t>(pattern: &str, text: &'t str) -> Vec<&'t str> {
    let pattern = Regex::new(pattern).unwrap();
    let found = pattern.captures_iter(text).filter_map(|found| found.get(1));
    found.map(|found| found.as_str()).collect()
}
