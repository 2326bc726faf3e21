//! Access to hosts.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_process::is_private;
use tokio::net::TcpStream;

use crate::Network;
use crate::rules::HostRule;

/// Time limit of resolving a name, and of connecting to an address.
const LONGEST: Duration = Duration::from_secs(30);

/// The reason that a host cannot be reached.
#[derive(Debug)]
pub(super) enum HostRefusal {
    /// By the rules: the text that the program, the record and the model read.
    Denied(String),
    /// By the network.
    Failed(String),
}

/// The access rules for hosts.
#[derive(Debug, Clone)]
pub(crate) struct HostGate(Arc<Rule>);

#[derive(Debug)]
struct Rule {
    network: Network,
    hosts: Vec<HostRule>,
    private: bool,
}

impl HostGate {
    pub(crate) fn new(network: Network, hosts: Vec<HostRule>, private: bool) -> Self {
        Self(Arc::new(Rule { network, hosts, private }))
    }

    /// Connects to a host by name or address, if it is allowed.
    pub(super) async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, HostRefusal> {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        self.check_name(&host).map_err(HostRefusal::Denied)?;
        let addresses = self.resolve(&host, port).await?;
        let mut failed = format!("host {host} has no address");
        for address in self.check_addresses(&host, addresses).map_err(HostRefusal::Denied)? {
            match with_timeout(TcpStream::connect(address)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = format!("host {host} cannot be connected to: {error}"),
            }
        }
        Err(HostRefusal::Failed(failed))
    }

    pub(crate) fn check_name(&self, host: &str) -> Result<(), String> {
        match &self.0.network {
            Network::All => Ok(()),
            Network::Hosts(listed) => {
                if self.0.hosts.iter().any(|rule| rule.allows(host)) {
                    return Ok(());
                }
                Err(format!("host {host} is not among {}", listed.join(", ")))
            }
            Network::Loopback => {
                let is_it = literal(host).map_or(host == "localhost", |it| it.is_loopback());
                let denied = || format!("host {host} is not the loopback of this machine");
                if is_it { Ok(()) } else { Err(denied()) }
            }
            Network::None => Err(format!("host {host} is not granted: there is no network")),
        }
    }

    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, HostRefusal> {
        if let Some(address) = literal(host) {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        match with_timeout(tokio::net::lookup_host((host, port))).await {
            Ok(found) => Ok(found.collect()),
            Err(error) => {
                Err(HostRefusal::Failed(format!("host {host} cannot be resolved: {error}")))
            }
        }
    }

    /// Returns the addresses of a host that may be connected to.
    fn check_addresses(
        &self,
        host: &str,
        addresses: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, String> {
        let is_fine = |address: IpAddr| match self.0.network {
            Network::All => true,
            // An address in the list is granted explicitly.
            Network::Hosts(_) => self.0.private || literal(host).is_some() || !is_private(address),
            Network::Loopback => address.to_canonical().is_loopback(),
            Network::None => false,
        };
        let (fine, others): (Vec<_>, Vec<_>) =
            addresses.into_iter().partition(|address| is_fine(address.ip()));
        match others.first() {
            Some(other) if fine.is_empty() => {
                Err(format!("host {host} leads to {}, which is private", other.ip()))
            }
            _ => Ok(fine),
        }
    }
}

fn literal(host: &str) -> Option<IpAddr> {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    inner.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

async fn with_timeout<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::select! {
        done = work => done,
        () = SystemClock.sleep(LONGEST) => Err(io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(network: Network, private: bool) -> HostGate {
        let hosts = match &network {
            Network::Hosts(hosts) => hosts.iter().map(|it| HostRule::parse(it).unwrap()).collect(),
            _ => Vec::new(),
        };
        HostGate::new(network, hosts, private)
    }

    fn addresses(gate: &HostGate, host: &str, found: &[&str]) -> Result<Vec<String>, String> {
        let found = found.iter().map(|it| SocketAddr::new(it.parse().unwrap(), 80)).collect();
        let fine = gate.check_addresses(host, found)?;
        Ok(fine.iter().map(|it| it.ip().to_string()).collect())
    }

    /// Spec: N2
    #[test]
    fn names_do_not_lead_to_private_addresses() {
        let hosts = || Network::Hosts(vec!["a.example".into(), "10.0.0.1".into()]);
        let closed = gate(hosts(), false);
        let denied = addresses(&closed, "a.example", &["10.0.0.7"]).unwrap_err();
        assert_eq!(denied, "host a.example leads to 10.0.0.7, which is private");
        // Only the public ones of several addresses remain.
        let some = addresses(&closed, "a.example", &["10.0.0.7", "1.1.1.1", "::1"]);
        assert_eq!(some.unwrap(), ["1.1.1.1"]);
        assert_eq!(addresses(&closed, "10.0.0.1", &["10.0.0.1"]).unwrap(), ["10.0.0.1"]);
        let open = gate(hosts(), true);
        assert_eq!(addresses(&open, "a.example", &["10.0.0.7"]).unwrap(), ["10.0.0.7"]);
        let own = gate(Network::Loopback, false);
        assert_eq!(addresses(&own, "localhost", &["127.0.0.1", "1.1.1.1"]).unwrap(), ["127.0.0.1"]);
        assert!(addresses(&own, "localhost", &["1.1.1.1"]).is_err());
    }

    /// Spec: N1
    #[test]
    fn denials_say_what_is_granted() {
        let hosts = gate(Network::Hosts(vec!["api.example.com".into(), "*.b.org".into()]), false);
        let denied = |gate: &HostGate, host| gate.check_name(host).unwrap_err();
        assert_eq!(
            denied(&hosts, "example.org"),
            "host example.org is not among api.example.com, *.b.org"
        );
        assert_eq!(
            denied(&gate(Network::Loopback, false), "192.0.2.1"),
            "host 192.0.2.1 is not the loopback of this machine"
        );
        let none = denied(&gate(Network::None, false), "example.org");
        assert_eq!(none, "host example.org is not granted: there is no network");
        for host in ["localhost", "127.0.0.2", "::1", "[::1]"] {
            assert!(gate(Network::Loopback, false).check_name(host).is_ok(), "{host}");
        }
    }
}
