//! What callers and implementers may rely on.

// Snapshots of JSON are in the order that serde_json keeps.
#[cfg(not(feature = "unified-json"))]
mod carried;
mod codes;
mod converted;
mod defects;
mod facts;
mod format;
mod headers;
mod listeners;
mod names;
mod outputs;
mod rules;
mod settings;
mod stores;
mod unified;
mod wire_page;
