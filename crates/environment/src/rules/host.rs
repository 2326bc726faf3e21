//! An entry of the allowed hosts.

use std::net::IpAddr;

/// The hosts that an entry allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostRule {
    /// This address.
    Address(IpAddr),
    /// All names with this suffix, which begins with a dot.
    Below(String),
    /// This name, in lower case.
    Name(String),
}

impl HostRule {
    /// Parses an entry, or returns its defect.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(address) = address(text) {
            return Ok(Self::Address(address));
        }
        let (name, is_below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let is_label = |label: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            !label.is_empty() && label.len() <= 63 && label.bytes().all(fits)
        };
        if name.len() > 253 || !name.split('.').all(is_label) {
            return Err(format!(
                "`{text}` is no host: name it as `api.example.com` or `*.example.com`"
            ));
        }
        Ok(if is_below { Self::Below(format!(".{name}")) } else { Self::Name(name) })
    }

    /// Returns whether it allows this host, which is in lower case.
    pub(crate) fn allows(&self, host: &str) -> bool {
        match self {
            Self::Address(address) => self::address(host).as_ref() == Some(address),
            // Suffixes do not apply to addresses: their parts are no names.
            Self::Below(end) => {
                host.len() > end.len() && host.ends_with(end.as_str()) && address(host).is_none()
            }
            Self::Name(name) => host == name,
        }
    }
}

/// Parses a host that is an address, with or without the brackets of a URL.
fn address(host: &str) -> Option<IpAddr> {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    inner.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: N1
    #[test]
    fn entries_allow_what_they_say() {
        let allows = |entry: &str, host: &str| HostRule::parse(entry).unwrap().allows(host);
        for (entry, host) in [
            ("api.example.com", "api.example.com"),
            ("API.Example.com.", "api.example.com"),
            ("*.example.com", "api.example.com"),
            ("*.example.com", "a.b.example.com"),
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "[::1]"),
            ("[::1]", "::1"),
            ("127.0.0.1", "::ffff:127.0.0.1"),
        ] {
            assert!(allows(entry, host), "{entry} {host}");
        }
        for (entry, host) in [
            ("api.example.com", "example.com"),
            ("api.example.com", "api.example.com.evil.org"),
            ("*.example.com", "example.com"),
            ("*.example.com", ".example.com"),
            ("*.example.com", "evilexample.com"),
            ("127.0.0.1", "127.0.0.2"),
            ("example.com", "127.0.0.1"),
            ("*.0.1", "127.0.0.1"),
        ] {
            assert!(!allows(entry, host), "{entry} {host}");
        }
    }

    #[test]
    fn malformed_entries_are_refused() {
        for entry in ["", "*", "*.", "a..b", "http://a.b", "a.b:80", "a b", "*.*.com", "é.com"] {
            assert!(HostRule::parse(entry).is_err(), "{entry}");
        }
    }
}
