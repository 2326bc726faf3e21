//! Checks of this machine's walls, and of an agent's servers.

use std::path::Path;

use backstop_config::AgentFile;
use backstop_environment::{Helper, Support};
use layer0::failure::Chain;

use super::finding::Finding;
use crate::assemble::{self, Servers};

/// Tries each mechanism. A missing one is a problem only if an agent needs it.
pub(super) fn of_machine() -> Vec<Finding> {
    let probed = Helper::this_program().and_then(|helper| Support::probe(&helper));
    let support = match probed {
        Ok(support) => support,
        Err(error) => {
            return vec![Finding::skip("walls", Chain(&error).to_string())];
        }
    };
    let finding = |row: &backstop_environment::SupportRow| {
        let what = format!("{}: {}", row.mechanism, row.detail);
        match row.is_there {
            true => Finding::ok("walls", what),
            false => Finding { hint: row.mend.clone(), ..Finding::skip("walls", what) },
        }
    };
    support.rows().iter().map(finding).collect()
}

/// Connects to each server of an agent, once.
pub(super) async fn of_servers(file: &AgentFile, path: &Path) -> Vec<Finding> {
    let redactor = assemble::redactor(file, path);
    let mut findings = Vec::new();
    for table in &file.mcp {
        let described = assemble::server(table, file, path, &redactor);
        let connected = match described {
            Ok(server) => server.connect().await.map_err(|it| assemble::not_connected(&it, path)),
            Err(error) => Err(error),
        };
        findings.push(match connected {
            Ok(client) => {
                client.close().await;
                Finding::ok("mcp", Servers::describe(&client))
            }
            Err(error) => Finding::from_error("mcp", &error),
        });
    }
    findings
}
