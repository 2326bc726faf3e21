use std::borrow::Cow;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use layer0::code;
use layer0::failure::{Effect, Facts, Failure, Seconds};
use thiserror::Error;

/// Error of connecting to a server or listing its tools.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum McpError {
    /// The server requests a login at an address that is not public, where the server itself is not, and no grant
    /// allows the address ([`McpServer::grants`](crate::McpServer::grants)).
    ///
    /// Retry: never. Effect: none.
    #[error("MCP server `{server}` leads its login to `{host}` at {address}, which is not public")]
    #[non_exhaustive]
    AddressDenied {
        /// The server.
        server: String,
        /// The host at that address.
        host: Box<str>,
        /// The address that is not public.
        address: IpAddr,
    },
    /// Two tools of the server have the same name for the model.
    ///
    /// Retry: never. Effect: none.
    #[error("tools `{one}` and `{other}` of MCP server `{server}` are both `{name}`")]
    #[non_exhaustive]
    Clash {
        /// The server.
        server: String,
        /// Name at the server of the tool that was listed first.
        one: String,
        /// Name at the server of the other tool.
        other: String,
        /// Name of both tools for the model.
        name: String,
    },
    /// The connection was not made: the server ended, refused it, or spoke no known revision of the protocol.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("MCP server `{server}` {why}")]
    #[non_exhaustive]
    Initialize {
        /// The server.
        server: String,
        /// The failure, followed by the end of the server's standard error, in one line.
        why: String,
        /// HTTP status of the answer, if the server answered over HTTP.
        status: Option<u16>,
        /// End of the server's standard error, at most 8 KiB, without secrets.
        stderr: String,
    },
    /// The tools of the server cannot be listed.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("the tools of MCP server `{server}` cannot be listed: {why}")]
    #[non_exhaustive]
    List {
        /// The server.
        server: String,
        /// The defect of the list.
        why: String,
        /// End of the server's standard error, at most 8 KiB, without secrets.
        stderr: String,
    },
    /// The description of the server is invalid.
    ///
    /// Retry: never. Effect: none.
    #[error("MCP server `{server}` cannot be used: {why}")]
    #[non_exhaustive]
    Misconfigured {
        /// The server.
        server: String,
        /// The defect of the description.
        why: String,
    },
    /// The program of the server cannot be started.
    ///
    /// Retry: never. Effect: none.
    #[error("MCP server `{server}`: starting `{program}` failed")]
    #[non_exhaustive]
    Start {
        /// The server.
        server: String,
        /// The program.
        program: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The server did not answer in time.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("MCP server `{server}` did not answer {what} within {}{said}", Seconds(*after))]
    #[non_exhaustive]
    TimedOut {
        /// The server.
        server: String,
        /// Name of the unanswered request.
        what: &'static str,
        /// The limit.
        after: Duration,
        /// Whether the program had just been started. A program that first installs something is slow only once.
        was_just_started: bool,
        /// End of the server's standard error as part of the message; empty if the server wrote nothing.
        said: String,
        /// End of the server's standard error, at most 8 KiB, without secrets.
        stderr: String,
    },
}

impl McpError {
    /// Returns the server's name.
    #[must_use]
    pub fn server(&self) -> &str {
        match self {
            Self::AddressDenied { server, .. }
            | Self::Clash { server, .. }
            | Self::Initialize { server, .. }
            | Self::List { server, .. }
            | Self::Misconfigured { server, .. }
            | Self::Start { server, .. }
            | Self::TimedOut { server, .. } => server,
        }
    }

    /// Returns the HTTP status with which the server refused access.
    pub(crate) const fn refusal(&self) -> Option<u16> {
        match self {
            Self::Initialize { status: Some(status @ (401 | 403)), .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns the end of the server's standard error, at most 8 KiB, without secrets.
    #[must_use]
    pub fn stderr(&self) -> &str {
        match self {
            Self::Initialize { stderr, .. }
            | Self::List { stderr, .. }
            | Self::TimedOut { stderr, .. } => stderr,
            Self::AddressDenied { .. }
            | Self::Clash { .. }
            | Self::Misconfigured { .. }
            | Self::Start { .. } => "",
        }
    }
}

impl Failure for McpError {
    fn facts(&self) -> Facts {
        match self {
            Self::AddressDenied { .. } => Facts::never(code::MCP_ADDRESS_DENIED, Effect::None),
            Self::Clash { .. } => Facts::never(code::MCP_CLASH, Effect::None),
            Self::Initialize { .. } => Facts::backoff(code::MCP_INITIALIZE_FAILED, Effect::None),
            Self::List { .. } => Facts::backoff(code::MCP_LIST_FAILED, Effect::None),
            Self::Misconfigured { .. } => Facts::never(code::MCP_MISCONFIGURED, Effect::None),
            Self::Start { .. } => Facts::never(code::MCP_START_FAILED, Effect::None),
            Self::TimedOut { .. } => Facts::backoff(code::MCP_TIMEOUT, Effect::None),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::AddressDenied { address, .. } => Some(
                format!("Say where tokens are given (`token_url`), or grant `network:private:{address}`.")
                    .into(),
            ),
            Self::Initialize { status: Some(401 | 403), .. } => {
                Some("Give it a header or credentials that the server takes.".into())
            }
            Self::Initialize { status: Some(404), .. } => {
                Some("Check the path of its URL; it often ends with `/mcp`.".into())
            }
            Self::TimedOut { was_just_started: true, .. } => Some(
                "Give it a longer `start_timeout_ms` (in Rust `start_timeout`), or run its command once by hand where \
                 that installs the server at its first start, as `npx` and `uvx` do."
                    .into(),
            ),
            Self::Start { source, program, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some(format!("Install `{program}`, or let the server see `PATH`.").into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use layer0::failure::Retry;

    use super::*;

    /// Spec: E9, E6
    #[test]
    fn every_variant_states_its_facts() {
        let server = || "s".to_owned();
        let stderr = String::new;
        let denied = McpError::AddressDenied {
            server: server(),
            host: "intern".into(),
            address: [10, 0, 0, 1].into(),
        };
        let clash = McpError::Clash {
            server: server(),
            one: "a b".to_owned(),
            other: "a_b".to_owned(),
            name: "s__a_b".to_owned(),
        };
        let initialize = McpError::Initialize {
            server: server(),
            why: "ended".to_owned(),
            status: None,
            stderr: stderr(),
        };
        let list = McpError::List { server: server(), why: "no".to_owned(), stderr: stderr() };
        let misconfigured = McpError::Misconfigured { server: server(), why: "no".to_owned() };
        let start = McpError::Start {
            server: server(),
            program: "p".to_owned(),
            source: io::Error::other("no"),
        };
        let timed_out = McpError::TimedOut {
            server: server(),
            what: "its initialisation",
            after: Duration::from_secs(30),
            was_just_started: true,
            said: String::new(),
            stderr: stderr(),
        };
        assert!(timed_out.hint().is_some_and(|hint| hint.contains("`npx`")));
        for (error, code, retry) in [
            (denied, "mcp.address_denied", Retry::Never),
            (clash, "mcp.clash", Retry::Never),
            (initialize, "mcp.initialize_failed", Retry::Backoff),
            (list, "mcp.list_failed", Retry::Backoff),
            (misconfigured, "mcp.misconfigured", Retry::Never),
            (start, "mcp.start_failed", Retry::Never),
            (timed_out, "mcp.timeout", Retry::Backoff),
        ] {
            assert_eq!((error.code(), error.retry(), error.effect()), (code, retry, Effect::None));
            assert_eq!(error.server(), "s");
        }
    }
}
