//! The switch that keeps requests on this machine.

use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

static REAL_REQUESTS_DENIED: AtomicBool = AtomicBool::new(false);

/// Denies, from now on and in the whole process, every request of Backstop that would leave the
/// machine: to models, MCP servers and their logins, and behaviours, and those of `http_fetch`.
/// Test suites call it first.
pub fn deny_real_requests() {
    REAL_REQUESTS_DENIED.store(true, Ordering::Relaxed);
}

/// Checks that a request may be sent to a host: a name or an address, in the form of a URL. All
/// code that sends requests calls this before each.
///
/// # Errors
///
/// [`RequestDenied`], when the host is another machine and [`deny_real_requests`] was called.
pub fn check_request(host: &str) -> Result<(), RequestDenied> {
    match REAL_REQUESTS_DENIED.load(Ordering::Relaxed) && !is_loopback(host) {
        true => Err(RequestDenied { host: host.to_owned() }),
        false => Ok(()),
    }
}

/// Returns whether a host, a name or an address in the form of a URL, is this machine.
///
/// ```
/// use backstop_process::is_loopback;
///
/// assert!(is_loopback("localhost") && is_loopback("127.0.0.1") && is_loopback("[::1]"));
/// assert!(!is_loopback("localhost.example.com"));
/// ```
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The error that a request would have left the machine.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestDenied {
    host: String,
}

impl Failure for RequestDenied {
    fn facts(&self) -> Facts {
        Facts::never(code::ENV_NETWORK_DENIED, Effect::None)
    }
}

impl fmt::Display for RequestDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "real requests are denied in this process: `{}` is another machine", self.host)
    }
}

impl Error for RequestDenied {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: P11. The only test here that turns the switch, which is the process's.
    #[test]
    fn only_this_machine_is_asked_when_denied() {
        let hosts = ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"];
        let others = ["api.example.com", "localhost.example.com", "10.0.0.1", "[fe80::1]", ""];
        assert!(hosts.iter().chain(&others).all(|host| check_request(host).is_ok()));
        deny_real_requests();
        assert!(hosts.iter().all(|host| check_request(host).is_ok()));
        assert!(others.iter().all(|host| check_request(host).is_err()));
        let denied = check_request("api.example.com").unwrap_err().to_string();
        let expected =
            "real requests are denied in this process: `api.example.com` is another machine";
        assert_eq!(denied, expected);
    }
}
