//! One connection to a server, from its initialisation to its end.

mod handler;
mod http;
mod lines;
mod program;
mod request;
mod said;
mod stderr;
pub(crate) mod wire;

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use layer0::error::EnvError;
use layer0::failure::Chain;
use rmcp::model::{ProtocolVersion, SubscriptionFilter};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, RoleClient, RunningService,
    serve_client_with_lifecycle,
};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::handler::Handler;
use self::http::HttpFault;
use self::lines::Lines;
use self::program::KeptProgram;
pub(crate) use self::request::Failed;
pub(crate) use self::said::Said;
use self::stderr::Stderr;
use self::wire::Wire;
use crate::McpError;
use crate::fault::Fault;
use crate::progress::Progressing;
use crate::server::{Place, Settings};
use crate::spawn::{Held, ServerCommand, Spawned};

/// How often, and with which wait in between, it is looked whether a program that gave up has ended.
const LAST_LOOKS: u32 = 50;
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long the initialisation may take.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may take to show that it is still there.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that is spoken to. Dropping it ends the connection, and kills a program.
pub(crate) struct Connection {
    service: RunningService<RoleClient, Handler>,
    wire: Arc<Wire>,
    progressing: Arc<Progressing>,
    program: Option<(Arc<KeptProgram>, Arc<Stderr>)>,
    /// The walls around the program, where there are some.
    walls: Option<Held>,
    /// Was a request of a program not answered in time, so that it may hang for good?
    is_suspect: AtomicBool,
    _listening: DropGuard,
    _killed: Option<DropGuard>,
}

/// Says whether it is the folder that is missing: the system names neither.
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
    /// Connects, once.
    pub(crate) async fn open(settings: &Settings, changed: Arc<Notify>) -> Result<Self, McpError> {
        let wire = Arc::new(Wire::new(Arc::clone(&settings.secrets)));
        let progressing = Arc::new(Progressing::default());
        let handler = Handler {
            roots: settings.roots.clone(),
            progressing: Arc::clone(&progressing),
            changed: Arc::clone(&changed),
        };
        let mut walls = None;
        let (service, program) = match &settings.place {
            Place::Command { command, spawner } => {
                let mut spawned =
                    spawner.spawn(command).await.map_err(|source| McpError::Start {
                        server: settings.name.clone(),
                        program: command.program.clone(),
                        source: not_started(command, source),
                    })?;
                let stderr = listened(&mut spawned, settings);
                let Spawned { stdin, stdout, running, held, .. } = spawned;
                walls = held;
                let stdin = Arc::new(Mutex::new(stdin));
                let program = KeptProgram::keep(running, Arc::clone(&stdin), &settings.programs);
                let lines = Lines::new(
                    (stdin, stdout),
                    Arc::clone(&program),
                    Arc::clone(&stderr),
                    Arc::clone(&wire),
                    Arc::clone(&settings.clock),
                );
                let service = initialize(settings, handler, lines, &wire, Some(&stderr)).await?;
                (service, Some((program, stderr)))
            }
            Place::Url { url, headers, client, login } => {
                let http = http::Http {
                    client: client.clone(),
                    wire: Arc::clone(&wire),
                    login: login.clone(),
                    secrets: Arc::clone(&settings.secrets),
                    clock: Arc::clone(&settings.clock),
                };
                let transport = http::transport(url.as_str(), headers.clone(), http);
                (initialize(settings, handler, transport, &wire, None).await?, None)
            }
        };
        let listening = CancellationToken::new();
        listen(&service, changed, listening.clone());
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

    /// Returns what the walls around the program have held until now.
    pub(crate) fn held(&self) -> Vec<EnvError> {
        self.walls.as_ref().map(|held| held()).unwrap_or_default()
    }

    /// Can it be used, as far as is known?
    pub(crate) fn is_up(&self) -> bool {
        self.wire.closed().is_none() && !self.service.is_transport_closed()
    }

    /// Gives it up.
    pub(crate) fn close(&self, why: &str) {
        self.wire.close(why);
    }

    /// Ends it, and kills a program with all that it has started.
    pub(crate) fn end(&self) {
        self.close("was closed");
        self.service.cancellation_token().cancel();
        if let Some((program, _)) = &self.program {
            program.kill();
        }
    }

    /// Returns why it cannot be used any more.
    pub(crate) fn ended(&self) -> String {
        self.wire.closed().unwrap_or_else(|| "closed the connection".to_owned())
    }

    /// Notes that the server answered.
    pub(crate) fn has_worked(&self) {
        self.is_suspect.store(false, Ordering::Relaxed);
    }

    /// Asks a program that did not answer in time whether it is there, unless it is at work for other calls.
    pub(crate) async fn probe(&self, settings: &Settings) {
        let is_program = matches!(settings.place, Place::Command { .. });
        if !is_program || !self.is_suspect.load(Ordering::Relaxed) || self.wire.has_calls() {
            return;
        }
        // The call that asks has to have time left.
        let timeout = PING_TIMEOUT.min(settings.timeout / 2);
        match self.ping(&settings.clock, timeout).await {
            // An error is an answer too: the current revision has no ping.
            Ok(()) | Err(Fault::Protocol { .. }) => self.is_suspect.store(false, Ordering::Relaxed),
            Err(_) => self.close("hangs"),
        }
    }

    /// Returns the revision of the protocol that is spoken.
    pub(crate) fn protocol(&self) -> Option<String> {
        self.service.peer_info().map(|info| info.protocol_version.as_str().to_owned())
    }

    /// Returns what the server calls itself, with its version.
    pub(crate) fn implementation(&self) -> Option<String> {
        let info = self.service.peer_info()?;
        let this = info.server_info.as_ref()?;
        Some(format!("{} {}", this.name, this.version).trim().to_owned())
    }

    /// Returns the last of what a program wrote on standard error.
    pub(crate) fn stderr(&self) -> Option<&Stderr> {
        self.program.as_ref().map(|(_, stderr)| &**stderr)
    }
}

/// Begins to read what a program writes on standard error.
fn listened(spawned: &mut Spawned, settings: &Settings) -> Arc<Stderr> {
    for secret in spawned.secrets() {
        settings.secrets.add(secret);
    }
    let stderr = Stderr::new(settings.secrets.redactor());
    let output = std::mem::replace(&mut spawned.stderr, Box::new(tokio::io::empty()));
    tokio::spawn(Arc::clone(&stderr).read(output));
    stderr
}

/// Agrees on a revision: the current one, or the newest that a server of an earlier one knows.
async fn initialize<T: Transport<RoleClient> + 'static>(
    settings: &Settings,
    handler: Handler,
    transport: T,
    wire: &Wire,
    stderr: Option<&Arc<Stderr>>,
) -> Result<RunningService<RoleClient, Handler>, McpError> {
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::LATEST],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    };
    let served = serve_client_with_lifecycle(handler, transport, lifecycle);
    let said = |what: &str| stderr.map_or_else(|| what.to_owned(), |stderr| stderr.after(what));
    let all_said = || stderr.map(|stderr| stderr.text()).unwrap_or_default();
    let failed = tokio::select! {
        served = served => match served {
            Ok(service) => return Ok(service),
            Err(error) => error,
        },
        () = settings.clock.sleep(INITIALIZE_TIMEOUT) => {
            return Err(McpError::TimedOut {
                server: settings.name.clone(),
                what: "its initialisation",
                after: INITIALIZE_TIMEOUT,
                was_just_started: stderr.is_some(),
                said: said(""),
                stderr: all_said(),
            });
        }
    };
    // A program that ends breaks the pipe first: how it ended, and what it wrote, is known a moment later.
    let mut looks = 0..LAST_LOOKS;
    while stderr.is_some()
        && !is_answer(&failed)
        && wire.closed().is_none()
        && looks.next().is_some()
    {
        settings.clock.sleep(LOOK_AGAIN).await;
    }
    let fault = fault_within(&failed);
    if let Some(Fault::AddressDenied { host, address }) = fault {
        return Err(McpError::AddressDenied {
            server: settings.name.clone(),
            host: host.into(),
            address,
        });
    }
    let (status, why) = match (wire.closed(), fault) {
        // It says what was written too.
        (Some(why), _) => (None, why),
        (None, Some(fault)) => (fault.status(), fault.to_string()),
        (None, None) => (None, said(&refusal(&failed))),
    };
    let why = settings.secrets.redact(&why);
    let server = settings.name.clone();
    Err(McpError::Initialize { server, why, status, stderr: all_said() })
}

/// Did the server answer, and refuse?
fn is_answer(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::JsonRpcError(_)
        | ClientInitializeError::NoCompatibleProtocolVersion { .. } => true,
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => is_answer(fallback),
        _ => false,
    }
}

/// Returns why a message of the initialisation was not answered.
fn fault_within(error: &ClientInitializeError) -> Option<Fault> {
    match error {
        ClientInitializeError::TransportError { error, .. } => fault_of(error.error.as_ref()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => fault_within(fallback),
        _ => None,
    }
}

/// Returns the fault that an error of a transport holds.
fn fault_of(error: &(dyn Error + 'static)) -> Option<Fault> {
    match error.downcast_ref::<StreamableHttpError<HttpFault>>()? {
        StreamableHttpError::Client(HttpFault(fault)) => Some(fault.clone()),
        other => Some(Fault::Lost(format!("failed: {}", Chain(other)))),
    }
}

/// Says what a server answered to its initialisation, without what it wrote in whole.
fn refusal(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::JsonRpcError(error) => {
            format!("refused its initialisation: {} ({})", error.message, error.code.0)
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => refusal(fallback),
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let known: Vec<&str> = server_supported.iter().map(ProtocolVersion::as_str).collect();
            format!("speaks no known revision of the protocol, but {}", known.join(", "))
        }
        ClientInitializeError::ConnectionClosed(_) => "closed the connection".to_owned(),
        _ => "did not answer its initialisation as the protocol says".to_owned(),
    }
}

/// Listens for changes of the tools as the current revision has it; earlier ones tell without being asked.
fn listen(
    service: &RunningService<RoleClient, Handler>,
    changed: Arc<Notify>,
    until: CancellationToken,
) {
    let Some(info) = service.peer_info() else { return };
    let tells = info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed);
    if info.protocol_version.has_initialize() || tells != Some(true) {
        return;
    }
    let peer = service.peer().clone();
    let listening = async move {
        let wanted = SubscriptionFilter::builder().tools_list_changed().build();
        let Ok(mut subscription) = peer.listen(wanted).await else { return };
        while let Ok(Some(_)) = subscription.next().await {
            changed.notify_one();
        }
    };
    tokio::spawn(async move {
        tokio::select! {
            () = listening => {}
            () = until.cancelled() => {}
        }
    });
}
