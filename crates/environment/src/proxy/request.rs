//! The target of a request, and the request in its forwarded form.

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderName, HeaderValue, TE, UPGRADE};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Uri};

use super::gate::HostRefusal;

const HTTP: u16 = 80;

/// A host and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostTarget {
    /// A name or an address; an IPv6 address is in brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

/// Returns the target of a request. A `Host` header with another name is refused, because the target would trust it.
pub(super) fn target<B>(request: &Request<B>) -> Result<HostTarget, HostRefusal> {
    let failed = |why: &str| HostRefusal::Failed(why.to_owned());
    let uri = request.uri();
    let is_tunnel = request.method() == Method::CONNECT;
    if !is_tunnel && uri.scheme_str() != Some("http") {
        return Err(failed("this is a proxy: ask for `http://host/path`, or by CONNECT"));
    }
    let authority = uri.authority().ok_or_else(|| failed("the request names no host"))?;
    let port = match (authority.port_u16(), is_tunnel) {
        (Some(port), _) => port,
        (None, false) => HTTP,
        (None, true) => return Err(failed("the request names no port")),
    };
    let target = HostTarget { host: authority.host().to_ascii_lowercase(), port };
    let mut named = request.headers().get_all(HOST).iter();
    if let Some(value) = named.next() {
        let is_same = names(value, &target, is_tunnel) && named.next().is_none();
        if !is_same {
            let other = String::from_utf8_lossy(value.as_bytes()).into_owned();
            let host = &target.host;
            return Err(HostRefusal::Denied(format!("host {host} was asked for as host {other}")));
        }
    }
    Ok(target)
}

/// Returns whether a `Host` header names the target.
fn names(value: &HeaderValue, target: &HostTarget, is_tunnel: bool) -> bool {
    let Some(named) = value.to_str().ok().and_then(|text| text.parse::<Authority>().ok()) else {
        return false;
    };
    let is_port = match named.port_u16() {
        Some(port) => port == target.port,
        // Some programs omit the port of a tunnel.
        None => is_tunnel || target.port == HTTP,
    };
    is_port && !named.as_str().contains('@') && named.host().eq_ignore_ascii_case(&target.host)
}

/// Returns a request in the form for its host.
pub(super) fn rewrite_for_host(
    mut request: Request<Incoming>,
    target: &HostTarget,
) -> Request<Incoming> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let path = path.parse::<Uri>().unwrap_or_default();
    *request.uri_mut() = path;
    let headers = request.headers_mut();
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != HOST)
        .collect();
    let between = ["keep-alive", "proxy-authorization", "proxy-connection"];
    let between = between.map(HeaderName::from_static);
    for name in listed.into_iter().chain(between).chain([CONNECTION, TE, UPGRADE]) {
        headers.remove(name);
    }
    if !headers.contains_key(HOST) {
        let host = match target.port {
            HTTP => target.host.clone(),
            port => format!("{}:{port}", target.host),
        };
        if let Ok(value) = host.parse() {
            headers.insert(HOST, value);
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, uri: &str, hosts: &[&str]) -> Result<HostTarget, String> {
        let mut request = Request::builder().method(method).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        target(&request.body(()).unwrap()).map_err(|refusal| match refusal {
            HostRefusal::Denied(why) => format!("denied: {why}"),
            HostRefusal::Failed(why) => why,
        })
    }

    /// Spec: N2
    #[test]
    fn host_header_names_the_same_host() {
        let a = |port| Ok(HostTarget { host: "a.example".to_owned(), port });
        assert_eq!(asked("GET", "http://a.example/x", &[]), a(80));
        assert_eq!(asked("GET", "http://A.example/x", &["a.example"]), a(80));
        assert_eq!(asked("GET", "http://a.example:8080/x", &["a.example:8080"]), a(8080));
        assert_eq!(asked("CONNECT", "a.example:443", &["a.example:443"]), a(443));
        assert_eq!(asked("CONNECT", "a.example:443", &["a.example"]), a(443));
        for (method, uri, hosts) in [
            ("GET", "http://a.example/", &["b.example"][..]),
            ("GET", "http://a.example/", &["a.example:81"]),
            ("GET", "http://a.example/", &["a.example", "b.example"]),
            ("GET", "http://a.example/", &["a.example", "a.example"]),
            ("GET", "http://a.example:8080/", &["a.example"]),
            ("GET", "http://a.example/", &["b@a.example"]),
            ("GET", "http://a.example/", &[""]),
            ("CONNECT", "a.example:443", &["b.example:443"]),
            ("CONNECT", "a.example:443", &["a.example:80"]),
        ] {
            let answer = asked(method, uri, hosts);
            assert!(answer.as_ref().is_err_and(|why| why.starts_with("denied: ")), "{answer:?}");
        }
        let denied = asked("CONNECT", "a.example:443", &["b.example:443"]).unwrap_err();
        assert_eq!(denied, "denied: host a.example was asked for as host b.example:443");
        assert!(asked("GET", "/x", &["a.example"]).is_err());
        assert!(asked("GET", "https://a.example/x", &[]).is_err());
        assert!(asked("CONNECT", "a.example", &[]).is_err());
    }
}
