//! What callers and implementers may rely on.

mod carried;
mod categories;
mod chains;
mod codes;
mod converted;
mod defects;
mod facts;
mod format;
mod headers;
mod limited;
mod listeners;
mod memories;
mod outputs;
mod readme;
mod rules;
mod settings;
mod stores;
mod strict;
mod unified;
mod wire_page;
mod wrappers;
