//! Web origins that may reach a server over HTTP.

use std::net::IpAddr;

use http::Uri;

/// Origins of this machine, on any port.
const LOOPBACK: [&str; 6] = [
    "http://localhost:*",
    "http://127.0.0.1:*",
    "http://[::1]:*",
    "https://localhost:*",
    "https://127.0.0.1:*",
    "https://[::1]:*",
];

/// Returns the allowed origins: the named ones, and those of this machine if the listener is on a loopback address.
pub(crate) fn allowed_origins(listener: IpAddr, named: &[String]) -> Vec<String> {
    let loopback = LOOPBACK.iter().filter(|_| listener.is_loopback()).map(ToString::to_string);
    loopback.chain(named.iter().filter_map(|named| with_port(named))).collect()
}

/// Returns whether an origin is one of the [allowed ones](allowed_origins).
pub(crate) fn is_allowed(origin: &str, allowed: &[String]) -> bool {
    let Some(origin) = with_port(origin) else { return false };
    allowed.iter().any(|allowed| match allowed.strip_suffix('*') {
        Some(on_any_port) => {
            origin.strip_prefix(on_any_port).is_some_and(|port| !port.contains(':'))
        }
        None => origin == *allowed,
    })
}

/// Returns an origin with its port, which defaults to that of its scheme; `None` if the text is not an origin.
pub(crate) fn with_port(origin: &str) -> Option<String> {
    let uri: Uri = origin.parse().ok()?;
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
    let port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let has_path = origin.ends_with('/') || uri.path() != "/" || uri.query().is_some();
    if has_path || authority.as_str().contains('@') {
        return None;
    }
    let port = authority.port_u16().unwrap_or(port);
    Some(format!("{scheme}://{}:{port}", authority.host()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: Q10
    #[test]
    fn origins_are_compared_with_their_ports() {
        let allowed =
            allowed_origins(IpAddr::from([127, 0, 0, 1]), &["https://app.example".into()]);
        for origin in ["http://localhost:6274", "https://[::1]", "https://app.example:443"] {
            assert!(is_allowed(origin, &allowed), "{origin}");
        }
        for origin in
            ["http://localhost.example", "http://app.example", "https://a.app.example", "null"]
        {
            assert!(!is_allowed(origin, &allowed), "{origin}");
        }
    }

    /// Spec: Q10
    #[test]
    fn origins_have_a_port_and_no_path() {
        #[track_caller]
        fn check(origin: &str, expected: Option<&str>) {
            assert_eq!(with_port(origin).as_deref(), expected, "{origin}");
        }
        check("https://app.example", Some("https://app.example:443"));
        check("http://app.example", Some("http://app.example:80"));
        check("http://[::1]:3000", Some("http://[::1]:3000"));
        for other in [
            "app.example",
            "https://app.example/",
            "https://a@b",
            "null",
            "https://a/b",
            "ftp://a",
            "*",
        ] {
            check(other, None);
        }
    }
}
