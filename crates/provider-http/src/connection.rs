//! Failures of requests that got no response, and advice on fixing them.

use std::error::Error;
use std::io;

use backstop_provider::ProviderError;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls::CertificateError;
use thiserror::Error;

/// Path segments common to many endpoints. Others are hidden, as gateways put tokens into paths.
const COMMON_SEGMENTS: &[&str] =
    &["", "anthropic", "api", "compatible-mode", "inference", "ollama", "openai"];

/// Variables that name a proxy, for `https` requests and for `http` requests.
const PROXIES: [&[&str]; 2] = [
    &["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
    &["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
];

/// Returns a base URL without possible secrets: user name, query, fragment, and path segments that
/// are not common to many endpoints.
pub(crate) fn redact_base_url(base_url: &str) -> String {
    // URLs are parsed with either slash.
    let base_url = base_url.replace('\\', "/");
    let end = base_url.find(['?', '#']);
    let (url, rest) = base_url.split_at(end.unwrap_or(base_url.len()));
    let scheme = url.find("://").map_or(0, |at| at + 3);
    let (scheme, url) = url.split_at(scheme);
    let (authority, path) = url.split_at(url.find('/').unwrap_or(url.len()));
    let mut shown = scheme.to_owned();
    match authority.rsplit_once('@') {
        Some((_, host)) => shown.extend(["[redacted]@", host]),
        None => shown.push_str(authority),
    }
    for segment in path.split('/').skip(1) {
        shown.extend(["/", if is_common(segment) { segment } else { "…" }]);
    }
    shown.extend(rest.chars().next());
    if rest.len() > 1 {
        shown.push('…');
    }
    shown
}

fn is_common(segment: &str) -> bool {
    COMMON_SEGMENTS.contains(&segment) || is_version(segment)
}

/// Returns whether a path segment is an API version, such as `v1` or `v1beta2`.
fn is_version(segment: &str) -> bool {
    let number = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let Some(rest) = segment.strip_prefix('v') else { return false };
    let (major, rest) = rest.split_at(number(rest));
    let rest = rest.strip_prefix("alpha").or(rest.strip_prefix("beta")).unwrap_or(rest);
    (1..=2).contains(&major.len()) && rest.len() <= 2 && number(rest) == rest.len()
}

/// Returns the part of a URL's path that it contains twice in a row, if that part belongs to an API: a version, `api`,
/// or several segments.
pub(crate) fn repeated_path(url: &Url) -> Option<String> {
    let segments: Vec<&str> = url.path_segments()?.collect();
    let is_of_api = |part: &[&str]| part.len() > 1 || is_version(part[0]) || part[0] == "api";
    let repeated = |length: usize| {
        let mut parts = segments.windows(2 * length).map(|pair| pair.split_at(length));
        parts.find(|(one, other)| one == other && is_of_api(one)).map(|(part, _)| part.join("/"))
    };
    (1..=3).find_map(repeated)
}

/// Returns whether the host of a URL is this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(backstop_process::is_loopback)
}

/// A resolver that asks the system, and has its own error type for unknown hosts.
#[derive(Debug)]
pub(crate) struct HostResolver;

#[derive(Debug, Error)]
#[error("unknown host")]
struct UnknownHost(#[source] io::Error);

impl Resolve for HostResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(UnknownHost)?;
            Ok(Box::new(found.collect::<Vec<_>>().into_iter()) as Addrs)
        })
    }
}

/// Makes the error of a request that got no response. `place` is host and port, `base_url` comes
/// from [`shown`].
pub(crate) fn transport_error(error: reqwest::Error, place: &str, base_url: &str) -> ProviderError {
    let message = if error.is_connect() {
        format!("no connection to `{place}`")
    } else {
        format!("connection to `{place}` failed before the answer")
    };
    let hint = causes(&error).into_iter().rev().find_map(|cause| hint_for(cause, base_url));
    let error = ProviderError::transport(message, error);
    match hint {
        Some(hint) => error.with_hint(hint + &proxy_note(base_url)),
        None => error,
    }
}

/// Returns advice for a connection that was not established in time.
pub(crate) fn unreachable_hint(base_url: &str) -> String {
    let hint =
        format!("is it reachable from here? base_url is `{base_url}`; a firewall may be between");
    hint + &proxy_note(base_url)
}

fn hint_for(cause: &(dyn Error + 'static), base_url: &str) -> Option<String> {
    if cause.is::<UnknownHost>() {
        return Some(format!("check the host of base_url, which is `{base_url}`, and the network"));
    }
    if let Some(error) = cause.downcast_ref::<rustls::Error>() {
        return Some(tls_hint(error, base_url));
    }
    let other = if is_https(base_url) {
        "without TLS needs `http://`"
    } else {
        "with TLS needs `https://`"
    };
    let port = format!("check the port of base_url, which is `{base_url}`; a server {other}");
    if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        return if error.is_parse() {
            Some(format!("it does not speak HTTP there; {port}"))
        } else {
            error.is_incomplete_message().then(|| format!("it closed the connection; {port}"))
        };
    }
    match cause.downcast_ref::<io::Error>()?.kind() {
        io::ErrorKind::ConnectionRefused => {
            Some(format!("is it running? base_url is `{base_url}`"))
        }
        io::ErrorKind::AddrNotAvailable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::NetworkUnreachable => Some(unreachable_hint(base_url)),
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::UnexpectedEof => Some(format!("it closed the connection; {port}")),
        _ => None,
    }
}

fn tls_hint(error: &rustls::Error, base_url: &str) -> String {
    use CertificateError as Bad;
    let what = match error {
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS there; a server without it needs `http://`"
        }
        rustls::Error::InvalidCertificate(Bad::UnknownIssuer) => {
            "the authority that signed its certificate is not known here; if you trust it, name its \
             file in SSL_CERT_FILE"
        }
        rustls::Error::InvalidCertificate(
            Bad::NotValidForName | Bad::NotValidForNameContext { .. },
        ) => "its certificate is for another host name",
        rustls::Error::InvalidCertificate(
            Bad::Expired
            | Bad::ExpiredContext { .. }
            | Bad::NotValidYet
            | Bad::NotValidYetContext { .. },
        ) => "its certificate is not valid today; check the server, and the clock of this machine",
        rustls::Error::InvalidCertificate(_) => "its certificate cannot be used",
        _ => "it refuses TLS as it is spoken here; check host and port",
    };
    format!("{what}; base_url is `{base_url}`")
}

/// Returns a note with the proxy variable that applies. Its value is not shown, as it may hold a password.
fn proxy_note(base_url: &str) -> String {
    let is_local = Url::parse(base_url).is_ok_and(|url| is_loopback(&url));
    let names = PROXIES[usize::from(!is_https(base_url))];
    let is_set = |name: &&&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match names.iter().find(is_set).filter(|_| !is_local) {
        Some(name) => format!("; `{name}` names a proxy for it"),
        None => String::new(),
    }
}

fn is_https(base_url: &str) -> bool {
    base_url.starts_with("https:")
}

/// Returns an error and its causes, outermost first. The source of an I/O error skips the error
/// inside it, so that one is visited first.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> Vec<&'e (dyn Error + 'static)> {
    fn next<'e>(error: &&'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
        let error: &'e (dyn Error + 'static) = *error;
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inside) => Some(inside),
            None => error.source(),
        }
    }
    // The same maximum as elsewhere.
    std::iter::successors(Some(error), next).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: E10
    #[test]
    fn a_base_url_is_shown_without_secrets() {
        #[track_caller]
        fn check(base_url: &str, expected: &str) {
            assert_eq!(redact_base_url(base_url), expected, "{base_url}");
        }
        check("https://api.openai.com/v1", "https://api.openai.com/v1");
        check("http://127.0.0.1:4000", "http://127.0.0.1:4000");
        check("http://localhost:8080/", "http://localhost:8080/");
        check("https://g.example.com/v1beta2/openai", "https://g.example.com/v1beta2/openai");
        check("https://example.com/t0ken/v1", "https://example.com/…/v1");
        check("https://example.com/secret/v123/V1", "https://example.com/…/…/…");
        check("https://example.com\\t0ken", "https://example.com/…");
        check("https://token@example.com/v1", "https://[redacted]@example.com/v1");
        check("https://me:pass@word@example.com", "https://[redacted]@example.com");
        check("me:password@example.com/v1", "[redacted]@example.com/v1");
        check("https://example.com?key=secret", "https://example.com?…");
        check("https://example.com/v1#secret?x", "https://example.com/v1#…");
        check("https://example.com/v1?", "https://example.com/v1?");
        check("api.example.com", "api.example.com");
        check("", "");
    }

    #[test]
    fn each_tls_failure_has_a_hint() {
        use rustls::{AlertDescription, Error, InvalidMessage};
        for (error, expected) in [
            (Error::InvalidMessage(InvalidMessage::InvalidContentType), "does not speak TLS"),
            (Error::InvalidCertificate(CertificateError::UnknownIssuer), "SSL_CERT_FILE"),
            (Error::InvalidCertificate(CertificateError::NotValidForName), "another host name"),
            (Error::InvalidCertificate(CertificateError::Expired), "not valid today"),
            (Error::InvalidCertificate(CertificateError::NotValidYet), "not valid today"),
            (Error::InvalidCertificate(CertificateError::BadEncoding), "cannot be used"),
            (Error::AlertReceived(AlertDescription::ProtocolVersion), "check host and port"),
        ] {
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            let hints = causes(&error).into_iter().rev();
            let hint = hints.filter_map(|cause| hint_for(cause, "https://x")).next().unwrap();
            assert!(hint.contains(expected), "{error}: {hint}");
            assert!(hint.ends_with("; base_url is `https://x`"), "{hint}");
        }
    }

    #[test]
    fn loopback_is_told_from_the_network() {
        for (url, expected) in [
            ("http://127.0.0.1:1/", true),
            ("http://localhost/", true),
            ("http://[::1]:8080/", true),
            ("https://api.example.com/", false),
            ("http://localhost.example.com/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
