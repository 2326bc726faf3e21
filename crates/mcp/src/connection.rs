//! A connection to a server, from its initialisation to its end.

mod first_request;
mod handler;
mod http;
mod lines;
mod opening;
mod program;
mod request;
mod said;
mod stderr;
pub(crate) mod wire;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_clock::Clock;
use layer0::error::EnvError;
use rmcp::model::SubscriptionFilter;
use rmcp::service::{RoleClient, RunningService, ServiceError};
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use self::first_request::FirstRequest;
use self::handler::McpClientHandler;
use self::lines::StdioTransport;
use self::opening::{FailureSources, NotOpened, initialize, transport_fault};
use self::program::KeptProgram;
pub(crate) use self::request::FailedRequest;
pub(crate) use self::said::CallPayload;
use self::stderr::StderrTail;
use self::wire::Wire;
use crate::McpError;
use crate::backoff::Backoff;
use crate::fault::McpFault;
use crate::progress::ProgressRegistry;
use crate::server::{ServerLocation, Settings};
use crate::spawn::{BlockedOperationsFn, ServerCommand, SpawnedProgram};

/// Time limit of a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// State of the session after a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionState {
    /// The server has forgotten the session.
    Forgotten {
        /// Whether the request was refused for that reason, before it was run.
        is_refused_before_run: bool,
    },
    /// The server knows the session, as far as can be determined, or there is none.
    Known,
}

/// A connection to a server. Dropping it ends the connection, and kills a program.
pub(crate) struct Connection {
    service: RunningService<RoleClient, McpClientHandler>,
    wire: Arc<Wire>,
    progressing: Arc<ProgressRegistry>,
    program: Option<(Arc<KeptProgram>, Arc<StderrTail>)>,
    /// The operations that the walls around the program have blocked, if there are walls.
    walls: Option<BlockedOperationsFn>,
    /// Whether a request to a program timed out, so that the program may hang for good.
    is_suspect: AtomicBool,
    _listening: DropGuard,
    _killed: Option<DropGuard>,
}

/// Names the folder in the error if it is missing: the system's error does not.
fn not_started(command: &ServerCommand, error: io::Error) -> io::Error {
    match &command.folder {
        Some(folder) if !folder.is_dir() => {
            let why = format!("there is no folder `{}` to run it in", folder.display());
            io::Error::new(io::ErrorKind::NotADirectory, why)
        }
        _ => error,
    }
}

impl Connection {
    /// Connects. If a server refuses the requested revision and names a known one, connects once more with that.
    pub(crate) async fn open(settings: &Settings, changed: Arc<Notify>) -> Result<Self, McpError> {
        let opening = settings.opening();
        let opened = match Self::open_as(settings, &changed, &opening).await {
            Err(NotOpened { next: Some(next), .. }) => {
                Self::open_as(settings, &changed, &next).await.map(|opened| (opened, next))
            }
            opened => opened.map(|opened| (opened, opening)),
        };
        match opened {
            Ok((opened, opening)) => {
                settings.remember(opening.after(opened.service.peer_info().as_deref()));
                Ok(opened)
            }
            Err(NotOpened { error, .. }) => Err(error),
        }
    }

    async fn open_as(
        settings: &Settings,
        changed: &Arc<Notify>,
        opening: &FirstRequest,
    ) -> Result<Self, NotOpened> {
        let wire = Arc::new(Wire::new(Arc::clone(&settings.secrets)));
        let progressing = Arc::new(ProgressRegistry::default());
        let handler = McpClientHandler {
            roots: settings.roots.clone(),
            progressing: Arc::clone(&progressing),
            wire: Arc::clone(&wire),
            revision: opening.revision(),
            changed: Arc::clone(changed),
        };
        let probe_timeout = opening.probe_timeout(settings.start_timeout);
        let mut walls = None;
        let (service, program) = match &settings.place {
            ServerLocation::Command { command, spawner } => {
                let mut spawned =
                    spawner.spawn(command).await.map_err(|source| McpError::Start {
                        server: settings.name.clone(),
                        program: command.program.clone(),
                        source: not_started(command, source),
                    })?;
                let stderr = spawn_stderr_reader(&mut spawned, settings);
                let SpawnedProgram { stdin, stdout, running, held, .. } = spawned;
                walls = held;
                let stdin = Arc::new(Mutex::new(stdin));
                let program = KeptProgram::keep(running, Arc::clone(&stdin), &settings.programs);
                let lines = StdioTransport::new(
                    (stdin, stdout),
                    Arc::clone(&program),
                    Arc::clone(&stderr),
                    Arc::clone(&wire),
                    (Arc::clone(&settings.clock), probe_timeout),
                );
                let told = FailureSources { wire: &wire, stderr: Some(&stderr) };
                (
                    initialize(settings, handler, lines, opening, told).await?,
                    Some((program, stderr)),
                )
            }
            ServerLocation::Url { url, headers, client, login } => {
                let http = http::Http {
                    client: client.clone(),
                    wire: Arc::clone(&wire),
                    login: login.clone(),
                    secrets: Arc::clone(&settings.secrets),
                    clock: Arc::clone(&settings.clock),
                    probe_timeout,
                    changed: Arc::clone(changed),
                };
                let transport = http::transport(url.as_str(), headers.clone(), http);
                let told = FailureSources { wire: &wire, stderr: None };
                (initialize(settings, handler, transport, opening, told).await?, None)
            }
        };
        let listening = CancellationToken::new();
        listen(&service, Arc::clone(changed), &settings.clock, listening.clone());
        Ok(Self {
            service,
            wire,
            progressing,
            _killed: program.as_ref().map(|(program, _)| program.guard()),
            program,
            walls,
            is_suspect: AtomicBool::new(false),
            _listening: listening.drop_guard(),
        })
    }

    /// Returns the operations that the walls around the program have blocked so far.
    pub(crate) fn blocked_operations(&self) -> Vec<EnvError> {
        self.walls.as_ref().map(|held| held()).unwrap_or_default()
    }

    /// Returns whether the connection is usable, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        self.wire.close_reason().is_none() && !self.service.is_transport_closed()
    }

    /// Closes the connection.
    pub(crate) fn close(&self, why: &str) {
        self.wire.close(why);
    }

    /// Ends the connection, and kills a program with the processes that it has started.
    pub(crate) fn end(&self) {
        self.close("was closed");
        self.service.cancellation_token().cancel();
        if let Some((program, _)) = &self.program {
            program.kill();
        }
    }

    /// Returns the reason that the connection is closed.
    pub(crate) fn close_reason(&self) -> String {
        self.wire.close_reason().unwrap_or_else(|| "closed the connection".to_owned())
    }

    /// Records that the server answered.
    pub(crate) fn has_worked(&self) {
        self.is_suspect.store(false, Ordering::Relaxed);
    }

    /// Pings a program after a timeout, unless it is running other calls.
    pub(crate) async fn probe(&self, settings: &Settings) {
        let is_program = matches!(settings.place, ServerLocation::Command { .. });
        if !is_program || !self.is_suspect.load(Ordering::Relaxed) || self.wire.has_calls() {
            return;
        }
        // The call that waits for the ping must have time left.
        let timeout = PING_TIMEOUT.min(settings.timeout / 2);
        match self.ping(&settings.clock, timeout).await {
            // An error is an answer too: the current revision has no ping.
            Ok(()) | Err(McpFault::Protocol { .. }) => {
                self.is_suspect.store(false, Ordering::Relaxed);
            }
            Err(_) => self.close("hangs"),
        }
    }

    /// Determines by a ping whether the server still knows the session after it refused a request. If the server
    /// refuses the ping too, the session is the cause.
    pub(crate) async fn session_after(
        &self,
        refusal: &McpFault,
        settings: &Settings,
    ) -> SessionState {
        if !self.wire.has_session() || !refusal.is_refusal() {
            return SessionState::Known;
        }
        let is_refused_before_run = refusal.is_refused_by_status();
        if refusal.status() == Some(404) {
            return SessionState::Forgotten { is_refused_before_run };
        }
        let timeout = PING_TIMEOUT.min(settings.timeout / 2);
        match self.ping(&settings.clock, timeout).await {
            // Not every server knows the request.
            Err(McpFault::Protocol { code: -32601, .. } | McpFault::Status { status: 429, .. }) => {
                SessionState::Known
            }
            // A ping that is refused in another way shows nothing about the session, and in other words nothing about
            // whether the call ran.
            Err(other @ (McpFault::Status { .. } | McpFault::Protocol { .. }))
                if other.http_status() == refusal.http_status() =>
            {
                let is_of_session = is_refused_before_run || refusal.is_of_session();
                let is_refused_before_run = is_of_session && other == *refusal;
                SessionState::Forgotten { is_refused_before_run }
            }
            _ => SessionState::Known,
        }
    }

    /// Returns the negotiated revision of the protocol.
    pub(crate) fn protocol(&self) -> Option<String> {
        self.service.peer_info().map(|info| info.protocol_version.as_str().to_owned())
    }

    /// Returns the server's own name, with its version.
    pub(crate) fn implementation(&self) -> Option<String> {
        let info = self.service.peer_info()?;
        let this = info.server_info.as_ref()?;
        Some(format!("{} {}", this.name, this.version).trim().to_owned())
    }

    /// Returns the standard error of a program.
    pub(crate) fn stderr(&self) -> Option<&StderrTail> {
        self.program.as_ref().map(|(_, stderr)| &**stderr)
    }
}

/// Starts to read a program's standard error.
fn spawn_stderr_reader(spawned: &mut SpawnedProgram, settings: &Settings) -> Arc<StderrTail> {
    for secret in spawned.secrets() {
        settings.secrets.add(secret);
    }
    let stderr = StderrTail::new(settings.secrets.redactor());
    let output = std::mem::replace(&mut spawned.stderr, Box::new(tokio::io::empty()));
    tokio::spawn(Arc::clone(&stderr).read(output));
    stderr
}

/// Subscribes to changes of the tools, as the current revision requires; earlier revisions send them unasked.
fn listen(
    service: &RunningService<RoleClient, McpClientHandler>,
    changed: Arc<Notify>,
    clock: &Arc<dyn Clock>,
    until: CancellationToken,
) {
    let Some(info) = service.peer_info() else { return };
    let tells = info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed);
    if info.protocol_version.has_initialize() || tells != Some(true) {
        return;
    }
    let peer = service.peer().clone();
    let mut backoff = Backoff::new(Arc::clone(clock));
    let listening = async move {
        let mut has_gap = false;
        loop {
            let wanted = SubscriptionFilter::builder().tools_list_changed().build();
            match peer.listen(wanted).await {
                Ok(mut subscription) => {
                    // Notifications may have been lost while the subscription was closed.
                    if std::mem::replace(&mut has_gap, true) {
                        changed.notify_one();
                    }
                    while let Ok(Some(_)) = subscription.next().await {
                        backoff.reset();
                        changed.notify_one();
                    }
                }
                // The server does not know the request, despite its capabilities.
                Err(ServiceError::McpError(_)) => return,
                Err(_) => {}
            }
            if peer.is_transport_closed() {
                return;
            }
            backoff.wait(None).await;
        }
    };
    tokio::spawn(async move {
        tokio::select! {
            () = listening => {}
            () = until.cancelled() => {}
        }
    });
}
