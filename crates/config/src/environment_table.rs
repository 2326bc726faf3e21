//! `[environment]` of an agent file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use backstop_process::Credential;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use crate::checked::at_least_one;

/// Rules for the programs of tools. A rule is either enforced, or nothing is run.
///
/// ```
/// use backstop_config::{AgentFile, NetworkRule};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("agent.toml");
/// std::fs::write(
///     &path,
///     r#"
///     [model]
///     provider = "script"
///     script = "script.toml"
///     [environment]
///     network = { hosts = ["api.example.com"] }
///     read = ["./data"]
///     "#,
/// )?;
/// let environment = AgentFile::read(&path)?.environment.unwrap();
/// assert_eq!(environment.network, Some(NetworkRule::Hosts(vec!["api.example.com".into()])));
/// assert_eq!(environment.read.unwrap().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct EnvironmentTable {
    /// Connections that programs may make; any if absent.
    pub network: Option<NetworkRule>,
    /// Files and folders that programs may read, in addition to those that policy grants and those of the system; any
    /// if both this and `write` are absent.
    pub read: Option<Vec<PathBuf>>,
    /// Files and folders that programs may read and write.
    pub write: Option<Vec<PathBuf>>,
    /// Limit of the CPU time of a process, in milliseconds.
    #[serde(deserialize_with = "at_least_one")]
    pub cpu_ms: Option<u64>,
    /// Limit of the memory of a process, in MiB.
    #[serde(deserialize_with = "at_least_one")]
    pub memory_mib: Option<u64>,
    /// Limit of concurrent processes and threads of one call.
    #[serde(deserialize_with = "at_least_one")]
    pub processes: Option<u64>,
    /// Limit of the size of a file, in MiB.
    #[serde(deserialize_with = "at_least_one")]
    pub file_mib: Option<u64>,
    /// Size of an output that is kept, in KiB; 8 MiB by default.
    #[serde(deserialize_with = "at_least_one")]
    pub output_kib: Option<u64>,
    /// Variables that hold a credential, which is fetched when a tool starts: `env:NAME`, `file:PATH`, or `command:…`
    /// for the output of a command line.
    pub credentials: BTreeMap<String, Credential>,
    /// Whether to run without rules that this machine cannot enforce, which is recorded.
    pub best_effort: bool,
}

/// The connections that programs may make.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkRule {
    /// Anything.
    All,
    /// These hosts, through a proxy.
    Hosts(Vec<String>),
    /// The machine's own loopback, through a proxy.
    Loopback,
    /// Nothing.
    None,
}

impl<'de> Deserialize<'de> for NetworkRule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Hosts {
            hosts: Vec<String>,
        }
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "must be a rule; write \"none\", \"loopback\", \"all\" or { hosts = [\"…\"] }"
        )]
        enum WrittenNetwork {
            Hosts(Hosts),
            Name(String),
        }
        match WrittenNetwork::deserialize(from)? {
            WrittenNetwork::Name(name) => match name.as_str() {
                "all" => Ok(Self::All),
                "loopback" => Ok(Self::Loopback),
                "none" => Ok(Self::None),
                other => Err(D::Error::custom(format!(
                    "must be a rule, and is \"{other}\"; write \"none\", \"loopback\", \"all\" or {{ hosts = [\"…\"] }}"
                ))),
            },
            WrittenNetwork::Hosts(Hosts { hosts }) if hosts.is_empty() => {
                Err(D::Error::custom("must name a host; write \"none\" to let nothing through"))
            }
            WrittenNetwork::Hosts(Hosts { hosts }) => {
                match hosts.iter().find(|host| !is_host(host)) {
                    Some(host) => Err(D::Error::custom(format!(
                        "must hold names of hosts, and `{host}` is none; write such as api.example.com or *.example.com"
                    ))),
                    None => Ok(Self::Hosts(hosts)),
                }
            }
        }
    }
}

/// Returns whether a text is a host, without scheme, port and path. `*.` in front includes all hosts below.
fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_label = |label: &str| {
        !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
    };
    name.parse::<std::net::IpAddr>().is_ok() || name.split('.').all(is_label)
}
