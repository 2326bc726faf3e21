//! Addresses of hosts, and whether connections to them are allowed.

use std::io;
use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;
use backstop_process::is_private;
use backstop_tool::{Grants, ToolError};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolving};

use super::failure::request_error;

/// Capability for an address that is not public.
pub(super) const PRIVATE: &str = "network:private";

/// Resolver of host names.
#[async_trait]
pub trait Resolve: Send + Sync + 'static {
    /// Returns the addresses of a host, at least one.
    ///
    /// # Errors
    ///
    /// Any error that keeps the host from being resolved.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the call is dropped.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver.
pub(super) struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Resolver that returns the checked addresses for every name.
pub(super) struct FixedResolver(pub(super) Vec<IpAddr>);

impl reqwest::dns::Resolve for FixedResolver {
    fn resolve(&self, _: Name) -> Resolving {
        // The port is the URL's, or the default of its scheme.
        let addresses: Vec<_> = self.0.iter().map(|address| SocketAddr::new(*address, 0)).collect();
        Box::pin(async { Ok(Box::new(addresses.into_iter()) as Addrs) })
    }
}

/// Returns the host as grants name it: in lower case, without a trailing dot, an IPv6 address without brackets.
pub(super) fn host(url: &Url) -> Result<String, ToolError> {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    if host.is_empty() {
        return Err(ToolError::InvalidInput("url has no host".to_owned()));
    }
    Ok(host.to_owned())
}

/// Returns the capability for requests to a host.
pub(super) fn outbound(host: &str) -> String {
    format!("network:outbound:{host}")
}

/// Returns the capability for a URL with an address that is not public.
pub(super) fn private_literal(url: &Url) -> Option<String> {
    let address = literal(url)?;
    is_private(address).then(|| private(address))
}

/// Returns the addresses of a URL's host.
pub(super) async fn find(resolver: &dyn Resolve, url: &Url) -> Result<Vec<IpAddr>, ToolError> {
    if let Some(address) = literal(url) {
        return Ok(vec![address]);
    }
    let host = url.host_str().unwrap_or_default();
    match resolver.resolve(host).await {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(request_error(format!("`{host}` has no address"))),
        Err(error) => Err(request_error(format!("`{host}` cannot be resolved: {error}"))),
    }
}

/// Returns whether the tool may connect to this address, by any name.
pub(super) fn may_connect(address: IpAddr, grants: &Grants) -> bool {
    !is_private(address) || grants.allow(&private(address))
}

fn private(address: IpAddr) -> String {
    format!("{PRIVATE}:{}", address.to_canonical())
}

fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}
