//! Faults between a call and its answer, and the failures that the model reads.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use backstop_redact::Redactor;
use backstop_tool::ToolError;
use layer0::ToolSpec;
use layer0::failure::{Effect, Retry, Seconds};

/// The reason that a call has no result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum McpFault {
    /// The server has an address asked for a login that it must not choose.
    AddressDenied { host: String, address: IpAddr },
    /// The request was not sent.
    NotSent(String),
    /// The connection is lost, or the answer was cut off.
    Lost(String),
    /// An unreadable answer.
    Unreadable(String),
    /// An HTTP status without a message of the protocol.
    Status {
        status: u16,
        retry_after: Option<Duration>,
        /// The body of the answer, truncated.
        text: String,
    },
    /// A JSON-RPC error.
    Protocol {
        code: i32,
        message: String,
        /// HTTP status of the answer, unless it is success.
        status: Option<u16>,
    },
    /// No answer in time.
    TimedOut(Duration),
}

/// Writes the fault as a predicate that follows the server's name.
impl fmt::Display for McpFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressDenied { host, address } => {
                write!(f, "leads its login to `{host}` at {address}, which is not public")
            }
            Self::NotSent(why) | Self::Lost(why) => f.write_str(why),
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Self::Status { status, text, .. } if text.is_empty() => {
                write!(f, "answered HTTP {status}")
            }
            Self::Status { status, text, .. } => write!(f, "answered HTTP {status}: {text}"),
            Self::Protocol { code, message, .. } => {
                write!(f, "answered with error {code}: {message}")
            }
            Self::TimedOut(after) => write!(f, "did not answer within {}", Seconds(*after)),
        }
    }
}

/// Properties of a call that decide what a fault means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultContext<'a> {
    /// The server's name.
    pub(crate) server: &'a str,
    /// The tool.
    pub(crate) tool: &'a ToolSpec,
    /// Whether the server may have received the request.
    pub(crate) left: bool,
}

impl McpFault {
    /// Returns the HTTP status of the answer.
    pub(crate) const fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns the HTTP status of the answer, also that of a protocol error; `None` for success.
    pub(crate) const fn http_status(&self) -> Option<u16> {
        match self {
            Self::Protocol { status, .. } => *status,
            other => other.status(),
        }
    }

    /// Returns whether the server refused the request, as it also does if it has forgotten the session.
    pub(crate) const fn is_refusal(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 400..=428 | 430..=599),
            Self::Protocol { .. } => true,
            _ => false,
        }
    }

    /// Returns whether the HTTP status implies that the request was not run.
    pub(crate) const fn is_refused_by_status(&self) -> bool {
        matches!(self.http_status(), Some(400..=407 | 409..=499))
    }

    /// Returns whether a protocol error implies by itself that the request was not run. Many servers use one error for
    /// every failure, for a call that has acted as well as for an unknown request.
    pub(crate) fn is_of_session(&self) -> bool {
        let Self::Protocol { code, message, .. } = self else { return false };
        let message = message.to_ascii_lowercase();
        protocol_effect(*code) == Effect::None
            || ["session", "initializ", "initialis"].iter().any(|word| message.contains(word))
    }

    /// Redacts the text of the server.
    pub(crate) fn redact(mut self, redactor: &Redactor) -> Self {
        let (Self::NotSent(text)
        | Self::Lost(text)
        | Self::Unreadable(text)
        | Self::Status { text, .. }
        | Self::Protocol { message: text, .. }) = &mut self
        else {
            return self;
        };
        *text = redactor.redact(text).into_owned();
        self
    }

    /// Returns whether the connection has to be closed.
    pub(crate) const fn ends_connection(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Lost(_) | Self::Status { status: 404, .. } => true,
            Self::AddressDenied { .. }
            | Self::Unreadable(_)
            | Self::Status { .. }
            | Self::Protocol { .. }
            | Self::TimedOut(_) => false,
        }
    }

    /// Converts the fault to the failure of the call.
    pub(crate) fn into_error(self, called: FaultContext<'_>) -> ToolError {
        let FaultContext { server, tool, left } = called;
        let shown = self.to_string();
        let effect = if left { Effect::Unknown } else { Effect::None };
        let unavailable =
            |why: String| ToolError::Unavailable(format!("MCP server `{server}` {why}"));
        match self {
            Self::AddressDenied { address, .. } => {
                ToolError::permission_denied(&*tool.name, format!("network:private:{address}"))
                    .with_effect(Effect::None)
            }
            Self::NotSent(why) => {
                unavailable(why).with_effect(Effect::None).with_retry(Retry::Backoff)
            }
            Self::Lost(why) if tool.idempotent || !left => {
                unavailable(why).with_effect(effect).with_retry(Retry::Backoff)
            }
            Self::Lost(why) => ToolError::Interrupted
                .with_output(format!("MCP server `{server}` {why}"))
                .with_effect(Effect::Unknown),
            Self::Unreadable(why) => ToolError::InvalidOutput(why).with_effect(effect),
            Self::Status { status, retry_after, .. } => {
                let (retry, effect) = status_facts(status, retry_after);
                unavailable(shown)
                    .with_code(status.to_string())
                    .with_retry(retry)
                    .with_effect(effect)
            }
            Self::Protocol { code: -32601, .. } => {
                ToolError::NotFound(tool.name.to_string()).with_code("-32601")
            }
            Self::Protocol { code: -32602, message, .. } => find_reported_error(tool, &message)
                .unwrap_or(ToolError::InvalidInput(message))
                .with_code("-32602"),
            Self::Protocol { code, message, .. } => ToolError::ExecutionFailed(message)
                .with_code(code.to_string())
                .with_effect(protocol_effect(code)),
            Self::TimedOut(after) => ToolError::timeout(after).with_effect(effect),
        }
    }
}

/// Returns the failure of a call that never reached the tool, if a server reports it as an error of the tool. Such
/// errors are recognised by the wording of the official SDKs.
pub(crate) fn find_reported_error(tool: &ToolSpec, text: &str) -> Option<ToolError> {
    let text = text.trim();
    let text = text.strip_prefix("MCP error -32602:").map_or(text, str::trim_start);
    let text = text.strip_prefix("MCP error -32601:").map_or(text, str::trim_start);
    let first = text.lines().next().unwrap_or_default().to_ascii_lowercase();
    let origin = tool.origin.as_deref().unwrap_or(&tool.name).to_ascii_lowercase();
    let is_missing = first.starts_with("unknown tool")
        || (first.starts_with("tool ")
            && first.contains(&origin)
            && (first.ends_with(" not found") || first.ends_with(" disabled")));
    if is_missing {
        return Some(ToolError::NotFound(tool.name.to_string()));
    }
    let is_misfit = ["input validation error", "invalid arguments", "invalid params"];
    if is_misfit.iter().any(|words| first.starts_with(words)) {
        return Some(ToolError::InvalidInput(text.to_owned()));
    }
    None
}

/// Returns the facts of an HTTP status. A server that asks to slow down, to log in or to start a new session did not
/// run the call; a server that fails, or that times out as a gateway, may have run it.
const fn status_facts(status: u16, retry_after: Option<Duration>) -> (Retry, Effect) {
    match status {
        404 => (Retry::Backoff, Effect::None),
        425 | 429 => (Retry::from_hint(retry_after), Effect::None),
        408 | 500..=599 => (Retry::from_hint(retry_after), Effect::Unknown),
        _ => (Retry::Never, Effect::None),
    }
}

/// Returns the effect of a protocol error. Invalid JSON and invalid requests were not run.
const fn protocol_effect(code: i32) -> Effect {
    match code {
        -32700 | -32600 => Effect::None,
        _ => Effect::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Spec: Q2
    #[test]
    fn the_words_of_sdks_are_known() {
        #[track_caller]
        fn check(text: &str, code: Option<&str>) {
            use layer0::Failure;
            let spec = ToolSpec::new("s__shed", "", json!({})).origin("shed");
            assert_eq!(find_reported_error(&spec, text).map(|error| error.code()), code, "{text}");
        }
        check("Unknown tool: shed", Some("tool.not_found"));
        check("MCP error -32602: Tool shed not found", Some("tool.not_found"));
        check("Tool 'shed' not found", Some("tool.not_found"));
        check("MCP error -32602: Tool shed disabled", Some("tool.not_found"));
        check("Tool box not found", None);
        check("the file was not found", None);
        check("Input validation error: 'n' is required", Some("tool.invalid_input"));
        check("Invalid arguments for tool shed: []", Some("tool.invalid_input"));
        check("the disk is full", None);
    }
}
