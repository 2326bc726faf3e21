//! Addresses to which a server may direct a login.

use std::io;
use std::net::{IpAddr, SocketAddr};

use backstop_process::{check_request, is_private};
use backstop_tool::Grants;
use reqwest::{Client, Url};

use super::error::LoginError;
use crate::http_client::http_client;

/// Access rules for the addresses that a server chooses.
///
/// The server itself is always allowed. Any other address that is not public is allowed only if the server has the same
/// one (or both are loopback addresses), or if a grant names it: a server on the internet must not make this process
/// send requests to the local network.
pub(super) struct Reach {
    server: Url,
    /// The client of the server.
    client: Client,
    grants: Grants,
}

impl Reach {
    pub(super) const fn new(server: Url, client: Client, grants: Grants) -> Self {
        Self { server, client, grants }
    }

    /// Returns the client of the server, for URLs that the operator chose.
    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    pub(super) const fn server(&self) -> &Url {
        &self.server
    }

    /// Returns a client for a URL that the server chose. It connects only to the addresses that were checked.
    pub(super) async fn client_for(&self, url: &Url) -> Result<Client, LoginError> {
        let host = url.host_str().unwrap_or_default();
        check_request(host).map_err(|denied| LoginError::Failed(denied.to_string()))?;
        if url.origin() == self.server.origin() {
            return Ok(self.client.clone());
        }
        let unresolved =
            |error: io::Error| LoginError::Failed(format!("`{host}` cannot be resolved: {error}"));
        let found = addresses(url).await.map_err(unresolved)?;
        let mut own = None;
        for address in &found {
            if !is_private(*address) {
                continue;
            }
            let own = match &own {
                Some(own) => own,
                // If its addresses are unknown, the server counts as being at none of them.
                None => own.insert(addresses(&self.server).await.unwrap_or_default()),
            };
            if !may_ask(*address, own, &self.grants) {
                let host = host.to_owned();
                return Err(LoginError::AddressDenied { host, address: address.to_canonical() });
            }
        }
        let is_here = found.iter().all(|address| address.to_canonical().is_loopback());
        let at: Vec<SocketAddr> = found.iter().map(|it| SocketAddr::new(*it, 0)).collect();
        let client = http_client(is_here, Some((host, &at)));
        client.map_err(|error| LoginError::Failed(error.to_string()))
    }
}

/// Returns whether an address may be contacted for a server with the addresses `own`.
fn may_ask(address: IpAddr, own: &[IpAddr], grants: &Grants) -> bool {
    let address = address.to_canonical();
    let is_same = |own: &IpAddr| {
        let own = own.to_canonical();
        own == address || (own.is_loopback() && address.is_loopback())
    };
    !is_private(address)
        || own.iter().any(is_same)
        || grants.allow(&format!("network:private:{address}"))
}

/// Returns the addresses of a URL's host.
async fn addresses(url: &Url) -> io::Result<Vec<IpAddr>> {
    let host = url.host_str().unwrap_or_default();
    if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse() {
        return Ok(vec![address]);
    }
    let found: Vec<IpAddr> =
        tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect();
    match found.is_empty() {
        true => Err(io::Error::other("it has no address")),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: Q9, N4
    #[test]
    fn private_addresses_need_the_server_or_a_grant() {
        #[track_caller]
        fn check(address: &str, own: &str, grants: &[&str], may: bool) {
            let grants = Grants::parse(grants).unwrap();
            let own = [own.parse().unwrap()];
            let asked = may_ask(address.parse().unwrap(), &own, &grants);
            assert_eq!(asked, may, "{address} for {own:?}");
        }
        let public = "93.184.216.34";
        check("1.1.1.1", public, &[], true);
        for private in ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "0.0.0.0", "fd00::1"] {
            check(private, public, &[], false);
            check(private, public, &["network:outbound"], false);
            check(private, public, &["network:private"], true);
        }
        check("::ffff:127.0.0.1", public, &[], false);
        check("::ffff:10.0.0.1", public, &["network:private:10.0.0.1"], true);
        check("10.0.0.1", public, &["network:private:10.0.0.2"], false);
        check("10.0.0.1", "10.0.0.1", &[], true);
        check("10.0.0.1", "10.0.0.2", &[], false);
        check("::1", "127.0.0.1", &[], true);
        check("169.254.169.254", "127.0.0.1", &[], false);
    }

    /// Spec: Q9, N4
    #[tokio::test]
    async fn names_are_judged_by_where_they_lead() {
        let url = |url: &str| Url::parse(url).unwrap();
        let client = http_client(false, None).unwrap();
        let reach = Reach::new(url("https://93.184.216.34/mcp"), client, Grants::none());
        for denied in ["http://localhost:9/", "http://127.1/", "http://[::ffff:169.254.169.254]/"] {
            let error = reach.client_for(&url(denied)).await.unwrap_err();
            assert!(matches!(error, LoginError::AddressDenied { .. }), "{denied}: {error}");
        }
        for fine in ["https://1.1.1.1/", "https://93.184.216.34/.well-known/x"] {
            reach.client_for(&url(fine)).await.unwrap();
        }
    }
}
