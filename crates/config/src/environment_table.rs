//! `[environment]` of an agent file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use backstop_process::Credential;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use crate::checked::at_least_one;

/// What the programs of tools may reach and use. What is stated is enforced, or nothing is run.
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
    /// What they may connect to; anything where it says nothing.
    pub network: Option<NetworkRule>,
    /// The files and folders they may read, beside what policy grants and the system's own; any where neither
    /// this nor `write` stands there.
    pub read: Option<Vec<PathBuf>>,
    /// The files and folders they may read and write.
    pub write: Option<Vec<PathBuf>>,
    /// How much CPU time one may use, in milliseconds.
    #[serde(deserialize_with = "at_least_one")]
    pub cpu_ms: Option<u64>,
    /// How much memory one may use, in MiB.
    #[serde(deserialize_with = "at_least_one")]
    pub memory_mib: Option<u64>,
    /// How many processes and threads one call may have at a time.
    #[serde(deserialize_with = "at_least_one")]
    pub processes: Option<u64>,
    /// How large a file may become, in MiB.
    #[serde(deserialize_with = "at_least_one")]
    pub file_mib: Option<u64>,
    /// How much of an output is kept, in KiB; 8 MiB otherwise.
    #[serde(deserialize_with = "at_least_one")]
    pub output_kib: Option<u64>,
    /// Variables that hold a credential, which is fetched when a tool starts: `env:NAME`, `file:PATH`, or
    /// `command:…` for what a command line prints.
    pub credentials: BTreeMap<String, Credential>,
    /// Go on without what this machine cannot enforce? It is recorded then.
    pub best_effort: bool,
}

/// What programs may connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkRule {
    /// Anything.
    All,
    /// These hosts, through a proxy.
    Hosts(Vec<String>),
    /// This machine's own loopback, through a proxy.
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

/// Is this a host, without scheme, port and path? `*.` in front stands for all below it.
fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_label = |label: &str| {
        !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
    };
    name.parse::<std::net::IpAddr>().is_ok() || name.split('.').all(is_label)
}
