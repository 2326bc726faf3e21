//! The URLs of an endpoint, and its connections.

use std::time::Duration;

use layer0::error::BoxError;
use reqwest::{Client, Url};

use crate::config_error::ProviderConfigError;
use crate::connection;
use crate::wording::Wording;

pub(super) fn read_url(
    base_url: &str,
    path: &str,
    wording: &Wording,
) -> Result<Url, ProviderConfigError> {
    let invalid = |reason: &str| ProviderConfigError::InvalidBaseUrl {
        url: wording.clean(&connection::redact_base_url(base_url)),
        reason: reason.to_owned(),
    };
    let base = base_url.trim().trim_end_matches('/');
    let parsed = Url::parse(base).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(invalid("the scheme is neither `http` nor `https`"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(invalid("it carries a user name or a password"));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(invalid("a path is appended to it, so it cannot end in `?…` or `#…`"));
    }
    Url::parse(&format!("{base}{path}")).map_err(|error| invalid(&error.to_string()))
}

pub(super) fn open_client(url: &Url, connect: Duration) -> Result<Client, ProviderConfigError> {
    // Disabled explicitly: each of these is on for every client as soon as any crate of the process
    // enables its feature.
    let builder = Client::builder()
        .tls_backend_rustls()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .no_hickory_dns()
        .dns_resolver(connection::HostResolver)
        .connect_timeout(connect)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never());
    // A proxy is for requests that leave the machine.
    let builder = if connection::is_loopback(url) { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| ProviderConfigError::Client(BoxError::from(error)))
}
