//! A request to a server, and how it is sent.

use std::net::IpAddr;
use std::time::Duration;

use backstop_process::check_request;
use backstop_tool::{Arguments, ToolError};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, Url};

use super::address::FixedResolver;
use super::failure::{not_sent, request_error};

/// Time limit of connecting; the call as a whole is limited by its timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Default number of bytes of the body to read.
const DEFAULT_BYTES: u64 = 64 * 1024;
/// Maximum number of bytes that the model can ask for.
const MAX_BYTES: u64 = 8 * 1024 * 1024;
/// User agent of this tool.
const USER_AGENT: &str = concat!("backstop/", env!("CARGO_PKG_VERSION"));
/// Headers that belong to the connection, or determine its target.
const OF_THE_CONNECTION: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Headers that another origin may see too: they describe the wanted content, not the sender.
const OF_ANY_ORIGIN: [&str; 4] = ["accept", "accept-language", "range", "user-agent"];

/// A request of the model.
pub(super) struct FetchRequest {
    pub(super) url: Url,
    pub(super) max_bytes: usize,
    method: Method,
    headers: HeaderMap,
}

/// Returns the `url` argument.
pub(super) fn url(arguments: &Arguments) -> Result<Url, ToolError> {
    let invalid = |why: &str| ToolError::InvalidInput(format!("url {why}"));
    let text = arguments["url"].as_str().unwrap_or_default();
    let url = Url::parse(text).map_err(|error| invalid(&format!("cannot be read: {error}")))?;
    check_url(url).map_err(invalid)
}

/// Returns the URL if it is allowed in a request.
pub(super) fn check_url(url: Url) -> Result<Url, &'static str> {
    match url.scheme() {
        "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
            Err("must not hold credentials")
        }
        "http" | "https" if url.has_host() => Ok(url),
        _ => Err("must begin with http:// or https://"),
    }
}

impl FetchRequest {
    pub(super) fn read(arguments: &Arguments) -> Result<Self, ToolError> {
        let method = match arguments["method"].as_str() {
            Some("HEAD") => Method::HEAD,
            _ => Method::GET,
        };
        let max_bytes =
            arguments.whole_number("max_bytes")?.unwrap_or(DEFAULT_BYTES).min(MAX_BYTES);
        Ok(Self {
            url: url(arguments)?,
            max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
            method,
            headers: headers(arguments)?,
        })
    }

    pub(super) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// Follows a redirect.
    pub(super) fn go_to(&mut self, url: Url) {
        if url.origin() != self.url.origin() {
            let others = self.headers.keys().filter(|name| !OF_ANY_ORIGIN.contains(&name.as_str()));
            let others: Vec<HeaderName> = others.cloned().collect();
            others.iter().for_each(|name| drop(self.headers.remove(name)));
        }
        self.url = url;
    }

    /// Sends the request to one of these addresses only.
    pub(super) async fn send(&self, addresses: Vec<IpAddr>) -> Result<Response, ToolError> {
        for address in &addresses {
            let denied = check_request(&address.to_string());
            denied.map_err(|denied| request_error(denied.to_string()))?;
        }
        // Each request has its own client, so that it cannot use a connection that was granted to another call.
        // Features of reqwest that other parts of the process use are turned off.
        let client = Client::builder()
            .tls_backend_rustls()
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .no_hickory_dns()
            .no_proxy()
            .dns_resolver(FixedResolver(addresses))
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(0)
            .referer(false)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .build()
            .map_err(|error| request_error(error.to_string()))?;
        let request = client.request(self.method.clone(), self.url.clone());
        request.headers(self.headers.clone()).send().await.map_err(|error| not_sent(&error))
    }
}

fn headers(arguments: &Arguments) -> Result<HeaderMap, ToolError> {
    let mut headers = HeaderMap::new();
    headers.insert("user-agent", HeaderValue::from_static(USER_AGENT));
    headers.insert("accept", HeaderValue::from_static("*/*"));
    for (name, value) in arguments["headers"].as_object().into_iter().flatten() {
        let invalid = |why: &str| ToolError::InvalidInput(format!("header `{name}` {why}"));
        let header = HeaderName::try_from(name.as_str()).map_err(|_| invalid("is no header"))?;
        if OF_THE_CONNECTION.contains(&header.as_str()) {
            return Err(invalid("cannot be set"));
        }
        let value = HeaderValue::try_from(value.as_str().unwrap_or_default())
            .map_err(|_| invalid("has a value that cannot be sent"))?;
        headers.insert(header, value);
    }
    Ok(headers)
}
