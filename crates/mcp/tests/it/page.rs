//! The page of the faults, checked against the table.

use std::fmt::Write;

use libtest_mimic::Trial;

use crate::rows::{Row, rows};

/// The path of the page.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mcp-faults.md");

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("the page of faults is that of the table", || {
        let page = page();
        if std::env::var_os("UPDATE_PAGES").is_some() {
            std::fs::write(PAGE, page)?;
            return Ok(());
        }
        match std::fs::read_to_string(PAGE)? == page {
            true => Ok(()),
            false => Err("docs/mcp-faults.md is old: run the test with UPDATE_PAGES=1".into()),
        }
    })]
}

fn page() -> String {
    let mut page = "# What goes wrong with MCP servers\n\n\
        Each row of `crates/mcp/faults.json` is a fault of a server, and a test that brings it about over each \
        transport, whole and byte by byte. After each of them the next call works, but for a server that dies again and again. How to use servers is in \
        [MCP in ten minutes](mcp.md).\n\n\
        *Requests* is how many calls of tools the server gets; *restart* says that it is started, or connected \
        to, again. A tool is *declared* by the operator, never by its server. `*` stands for what differs from \
        machine to machine.\n"
        .to_owned();
    for (title, at) in [("In a call", "call"), ("While a client connects", "initialisation")] {
        let _ = writeln!(page, "\n## {title}\n");
        page.push_str(
            "| the server | over | declared | code | retry | effect | requests | restart | the text |\n\
             |---|---|---|---|---|---|---|---|---|\n",
        );
        for row in rows().iter().filter(|row| row.at == at) {
            line(&mut page, row);
        }
    }
    page
}

fn line(page: &mut String, row: &Row) {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
    let code = match (&row.reason, &row.code) {
        (None, _) => "works".to_owned(),
        (Some(reason), None) => format!("`{reason}`"),
        (Some(reason), Some(code)) => format!("`{reason}` ({code})"),
    };
    let declared = match row.declared.as_str() {
        "nothing" => "–",
        "read_only" => "read-only",
        "output_schema" => "output schema",
        declared => declared,
    };
    let text = if row.text.is_empty() { "(empty)".to_owned() } else { code_span(&row.text) };
    let restart = if row.restart { "yes" } else { "no" };
    let _ = writeln!(
        page,
        "| {} | {} | {declared} | {code} | {} | {} | {} | {restart} | {text} |",
        row.does,
        row.transport,
        or_none(&row.retry),
        or_none(&row.effect),
        row.requests,
    );
}

/// Formats a text as code; the text may contain backticks.
fn code_span(text: &str) -> String {
    let fence = if text.contains('`') { "``" } else { "`" };
    let space = if text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}
