//! Initialisation of a server: its revision, and the meaning of a refusal.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use layer0::failure::Chain;
use rmcp::model::{ProtocolVersion, ServerPeerInfo};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, RoleClient, RunningService,
    serve_client_with_lifecycle,
};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::first_request::FirstRequest;
use super::handler::McpClientHandler;
use super::http::HttpFault;
use super::stderr::StderrTail;
use super::wire::{PROBE_TIMEOUT, Wire};
use crate::McpError;
use crate::fault::McpFault;
use crate::server::Settings;

/// Number of checks whether a program that failed has ended, and the wait between them.
const LAST_LOOKS: u32 = 50;
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Maximum number of shown revisions of a server that refuses all known ones, and of the characters of each.
const MAX_SHOWN_REVISIONS: usize = 5;
const SHOWN_REVISION_CHARS: usize = 20;

/// Sources of information about a failed initialisation.
#[derive(Clone, Copy)]
pub(super) struct FailureSources<'a> {
    pub(super) wire: &'a Wire,
    /// The program's standard error.
    pub(super) stderr: Option<&'a Arc<StderrTail>>,
}

/// A failed connection, with the next way to open it, if another one may work.
pub(super) struct NotOpened {
    pub(super) error: McpError,
    pub(super) next: Option<FirstRequest>,
}

impl From<McpError> for NotOpened {
    fn from(error: McpError) -> Self {
        Self { error, next: None }
    }
}

impl FirstRequest {
    /// Returns the revision for `initialize`.
    pub(super) fn revision(&self) -> ProtocolVersion {
        match self {
            Self::Initialize(revision) => revision.clone(),
            Self::Discover | Self::Probe => ProtocolVersion::LATEST_WITH_INITIALIZE,
        }
    }

    /// Returns the time limit of `server/discover`.
    pub(super) fn probe_timeout(&self, start_timeout: Duration) -> Duration {
        match self {
            Self::Discover => start_timeout,
            Self::Initialize(_) | Self::Probe => PROBE_TIMEOUT.min(start_timeout / 2),
        }
    }

    /// Returns the way to open the same server again, without another probe if possible.
    pub(super) fn after(self, peer: Option<&ServerPeerInfo>) -> Self {
        match (self, peer) {
            (Self::Probe, Some(peer)) if peer.protocol_version.has_initialize() => {
                Self::Initialize(ProtocolVersion::LATEST_WITH_INITIALIZE)
            }
            (Self::Probe, Some(_)) => Self::Discover,
            (known, _) => known,
        }
    }

    fn lifecycle(&self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::LATEST];
        match self {
            Self::Discover => ClientLifecycleMode::Discover { preferred_versions },
            Self::Initialize(_) => ClientLifecycleMode::Initialize,
            Self::Probe => ClientLifecycleMode::Auto {
                preferred_versions,
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
        }
    }

    /// Returns another way to open the server after a refusal: with a revision that the server names, in the error's
    /// data or in its message, or with a new probe if the server is not as remembered.
    fn next(&self, refusal: &ClientInitializeError, wire: &Wire) -> Option<Self> {
        if !is_answer(refusal) {
            return None;
        }
        if wire.is_modern_late() {
            return Some(Self::Discover);
        }
        let known = ProtocolVersion::KNOWN_VERSIONS.iter().rev();
        let mut known = known.filter(|known| known.has_initialize());
        let (supported, said, asked) =
            (supported_revisions(refusal), refusal_message(refusal), self.revision());
        let named = known.find(|known| match supported.is_empty() {
            true => **known != asked && said.contains(known.as_str()),
            false => supported.contains(&known.as_str()),
        });
        match named.map(|named| Self::Initialize(named.clone())) {
            Some(named) if named != *self => Some(named),
            _ if *self != Self::Probe => Some(Self::Probe),
            _ => None,
        }
    }
}

/// Agrees on a revision: the current one, or the newest that an earlier server knows.
pub(super) async fn initialize<T: Transport<RoleClient> + 'static>(
    settings: &Settings,
    handler: McpClientHandler,
    transport: T,
    opening: &FirstRequest,
    told: FailureSources<'_>,
) -> Result<RunningService<RoleClient, McpClientHandler>, NotOpened> {
    let FailureSources { wire, stderr } = told;
    let served = serve_client_with_lifecycle(handler, transport, opening.lifecycle());
    let said = |what: &str| stderr.map_or_else(|| what.to_owned(), |stderr| stderr.after(what));
    let all_said = || stderr.map(|stderr| stderr.text()).unwrap_or_default();
    let failed = tokio::select! {
        served = served => match served {
            Ok(service) => return Ok(service),
            Err(error) => error,
        },
        () = settings.clock.sleep(settings.start_timeout) => {
            let error = McpError::TimedOut {
                server: settings.name.clone(),
                what: "its initialisation",
                after: settings.start_timeout,
                was_just_started: stderr.is_some(),
                said: said(""),
                stderr: all_said(),
            };
            return Err(error.into());
        }
    };
    // A program that ends breaks the pipe first; its exit status and output are known a moment later.
    let mut looks = 0..LAST_LOOKS;
    while stderr.is_some()
        && !is_answer(&failed)
        && wire.close_reason().is_none()
        && looks.next().is_some()
    {
        settings.clock.sleep(LOOK_AGAIN).await;
    }
    let fault = fault_within(&failed);
    if let Some(McpFault::AddressDenied { host, address }) = fault {
        let (server, host) = (settings.name.clone(), host.into());
        return Err(McpError::AddressDenied { server, host, address }.into());
    }
    let (status, why) = match (wire.close_reason(), fault) {
        // The reason includes the standard error.
        (Some(why), _) => (None, why),
        (None, Some(fault)) => (fault.status(), fault.to_string()),
        (None, None) => (None, said(&refusal(&failed))),
    };
    let why = settings.secrets.redact(&why);
    let server = settings.name.clone();
    let error = McpError::Initialize { server, why, status, stderr: all_said() };
    Err(NotOpened { error, next: opening.next(&failed, wire) })
}

/// Returns whether the server answered with a refusal.
fn is_answer(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::JsonRpcError(_)
        | ClientInitializeError::NoCompatibleProtocolVersion { .. } => true,
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => is_answer(fallback),
        _ => false,
    }
}

/// Returns the revisions that a server names when it refuses another one.
fn supported_revisions(error: &ClientInitializeError) -> Vec<&str> {
    match error {
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            server_supported.iter().map(ProtocolVersion::as_str).collect()
        }
        ClientInitializeError::JsonRpcError(error) => {
            let data = error.data.as_ref().and_then(|data| data["supported"].as_array());
            data.into_iter().flatten().filter_map(|it| it.as_str()).collect()
        }
        ClientInitializeError::LegacyFallbackFailed { discover, fallback } => {
            [supported_revisions(fallback), supported_revisions(discover)].concat()
        }
        _ => Vec::new(),
    }
}

/// Returns the message of a server's refusal; empty without one.
fn refusal_message(error: &ClientInitializeError) -> &str {
    match error {
        ClientInitializeError::JsonRpcError(error) => &error.message,
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => refusal_message(fallback),
        _ => "",
    }
}

/// Returns the fault that kept a message of the initialisation from being answered.
fn fault_within(error: &ClientInitializeError) -> Option<McpFault> {
    match error {
        ClientInitializeError::TransportError { error, .. } => {
            transport_fault(error.error.as_ref())
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => fault_within(fallback),
        _ => None,
    }
}

/// Returns the fault in an error of a transport.
pub(super) fn transport_fault(error: &(dyn Error + 'static)) -> Option<McpFault> {
    match error.downcast_ref::<StreamableHttpError<HttpFault>>()? {
        StreamableHttpError::Client(HttpFault(fault)) => Some(fault.clone()),
        other => Some(McpFault::Lost(format!("failed: {}", Chain(other)))),
    }
}

/// Describes the server's refusal of the initialisation, without its whole text.
fn refusal(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::JsonRpcError(answer) => {
            let named = supported_revisions(error).into_iter().take(MAX_SHOWN_REVISIONS);
            let named: Vec<String> = named
                .map(|revision| revision.chars().take(SHOWN_REVISION_CHARS).collect())
                .collect();
            let speaks = match named.is_empty() {
                true => String::new(),
                false => format!("; it speaks {}", named.join(", ")),
            };
            format!("refused its initialisation: {} ({}){speaks}", answer.message, answer.code.0)
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => refusal(fallback),
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let named: Vec<&str> = server_supported.iter().map(ProtocolVersion::as_str).collect();
            match named.is_empty() {
                true => {
                    "refused the revision of the protocol, and names none that it speaks".to_owned()
                }
                false => {
                    format!("speaks no known revision of the protocol, but {}", named.join(", "))
                }
            }
        }
        ClientInitializeError::ConnectionClosed(_) => "closed the connection".to_owned(),
        _ => "did not answer its initialisation as the protocol says".to_owned(),
    }
}
