//! The HTTP endpoint.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use layer0::text::replace_lone_surrogates_in;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::clients::Clients;
use crate::cors;
use crate::error::ServeError;
use crate::handler::McpServerHandler;
use crate::origin;
use crate::private_keys::{PRIVATE_KEY, has_private_key};

/// Maximum size of a client's message, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Default number of concurrent connections.
pub(crate) const MAX_CONNECTIONS: usize = 256;
/// Time limit for the head of a request; an idle connection is closed after it, too.
const LONGEST_HEAD: Duration = Duration::from_secs(30);
/// Time limit for a message.
const LONGEST_BODY: Duration = Duration::from_secs(60);
/// The time after which a message counts as unfinished.
const PROMPT_BODY: Duration = Duration::from_secs(1);
/// Divisor of the connection limit that gives the limit for unfinished messages of one client.
const UNFINISHED_PART: usize = 4;
/// Header with the name of a session, in requests and responses.
const SESSION: &str = "mcp-session-id";
/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);
/// Path of the endpoint.
const PATH: &str = "/mcp";

type ResponseBody = BoxBody<Bytes, std::convert::Infallible>;
type Collected = http_body_util::Collected<Bytes>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Door = StreamableHttpService<McpServerHandler, LocalSessionManager>;

/// Listener of the endpoint, with its access rules and limits.
pub(crate) struct Entrance {
    pub(crate) listener: TcpListener,
    pub(crate) token: Option<String>,
    pub(crate) max_connections: usize,
    pub(crate) origins: Vec<String>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The state that answers the requests of a connection.
#[derive(Clone)]
struct ConnectionState {
    door: Door,
    sessions: Arc<LocalSessionManager>,
    clients: Arc<Clients>,
    /// Maximum number of unfinished messages of one client.
    max_unfinished: usize,
    token: Option<Arc<[u8]>>,
    /// Origins whose pages are let in.
    origins: Arc<[String]>,
    clock: Arc<dyn Clock>,
}

/// Accepts connections until `stop` is cancelled.
pub(crate) async fn serve(
    handler: McpServerHandler,
    entrance: Entrance,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let Entrance { listener, token, max_connections, origins, clock } = entrance;
    let address = listener.local_addr().map_err(ServeError::Socket)?;
    check_reach(address, token.is_some())?;
    let origins = origin::allowed_origins(address.ip(), &origins);
    let sessions = Arc::<LocalSessionManager>::default();
    let door = door(handler, address, token.is_some(), origins.clone(), &stop, &sessions);
    let token: Option<Arc<[u8]>> = token.map(|token| digest(token.as_bytes()).into());
    let answering = ConnectionState {
        door,
        sessions,
        clients: Arc::default(),
        max_unfinished: (max_connections / UNFINISHED_PART).max(1),
        token,
        origins: origins.into(),
        clock: Arc::clone(&clock),
    };
    let permits = Arc::new(Semaphore::new(max_connections));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = async {
            // The semaphore is never closed.
            let permit = Arc::clone(&permits).acquire_owned().await.ok();
            (permit, listener.accept().await)
        };
        let (permit, stream) = tokio::select! {
            accepted = accepted => accepted,
            () = stop.cancelled() => return Ok(()),
        };
        match stream {
            Ok((stream, client)) => {
                let answering = answering.clone();
                connections.spawn(async move {
                    answering.serve(stream, client.ip()).await;
                    drop(permit);
                });
            }
            // The client has disconnected, or there are too many open files: one of them has to be closed first.
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::select! {
                    () = clock.sleep(PAUSE) => {}
                    () = stop.cancelled() => return Ok(()),
                }
            }
        }
    }
}

/// Refuses an address that is reachable from other machines if there is no token.
pub(crate) const fn check_reach(address: SocketAddr, has_token: bool) -> Result<(), ServeError> {
    match has_token || address.ip().is_loopback() {
        true => Ok(()),
        false => Err(ServeError::NoToken(address)),
    }
}

fn door(
    handler: McpServerHandler,
    address: SocketAddr,
    has_token: bool,
    origins: Vec<String>,
    stop: &CancellationToken,
    sessions: &Arc<LocalSessionManager>,
) -> Door {
    let config = StreamableHttpServerConfig::default()
        .with_cancellation_token(stop.child_token())
        .with_max_request_body_bytes(MAX_MESSAGE_BYTES)
        .with_allowed_origins(origins)
        .enforce_origin_validation();
    // A page in a browser could reach a local server through a host name of its own; a request with the token may use
    // any host name.
    let config = match has_token && !address.ip().is_loopback() {
        true => config.disable_allowed_hosts(),
        false => config,
    };
    StreamableHttpService::new(move || Ok(handler.clone()), Arc::clone(sessions), config)
}

impl ConnectionState {
    async fn serve(self, stream: TcpStream, client: IpAddr) {
        let service = service_fn(move |request| self.clone().answer(request, client));
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(LONGEST_HEAD)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = served.await {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    /// Answers a request, so that a page that is let in may read the answer.
    async fn answer(
        self,
        request: Request<Incoming>,
        client: IpAddr,
    ) -> Result<Response<ResponseBody>, std::convert::Infallible> {
        let Some(page) = cors::allowed_page(request.headers(), &self.origins) else {
            return self.answer_client(request, client).await;
        };
        if cors::is_preflight(request.method(), request.headers()) {
            let mut response = build_refusal(StatusCode::NO_CONTENT, "");
            cors::allow_requests(response.headers_mut(), page);
            return Ok(response);
        }
        let mut response = self.answer_client(request, client).await?;
        cors::show_answer(response.headers_mut(), page);
        Ok(response)
    }

    async fn answer_client(
        mut self,
        request: Request<Incoming>,
        client: IpAddr,
    ) -> Result<Response<ResponseBody>, std::convert::Infallible> {
        if request.uri().path() != PATH {
            return Ok(build_refusal(StatusCode::NOT_FOUND, "the server is at /mcp"));
        }
        if let Some(token) = &self.token {
            let given = request.headers().get(header::AUTHORIZATION);
            let given = given.and_then(|value| bearer(value.as_bytes()));
            // Digests are compared, so that the time taken reveals nothing about the token.
            if given.is_none_or(|given| digest(given)[..] != **token) {
                let mut response = build_refusal(StatusCode::UNAUTHORIZED, "a token is required");
                let scheme = header::HeaderValue::from_static("Bearer");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
                return Ok(response);
            }
        }
        let (head, body) = request.into_parts();
        let body = match self.collect(body, client).await {
            Ok(body) => body,
            Err(refused) => return Ok(refused),
        };
        match body {
            Ok(body) => {
                let mut body = Vec::from(body.to_bytes());
                replace_lone_surrogates_in(&mut body, true);
                if str::from_utf8(&body).is_ok_and(has_private_key) {
                    return Ok(build_refusal(StatusCode::BAD_REQUEST, PRIVATE_KEY));
                }
                self.call(Request::from_parts(head, Full::new(Bytes::from(body))), client).await
            }
            Err(error) if error.is::<LengthLimitError>() => {
                Ok(build_refusal(StatusCode::PAYLOAD_TOO_LARGE, "the message is too large"))
            }
            Err(_) => Ok(build_refusal(StatusCode::BAD_REQUEST, "the message cannot be read")),
        }
    }
}

impl ConnectionState {
    /// Collects a message. The number of slow messages of one client is limited.
    async fn collect(
        &self,
        body: Incoming,
        client: IpAddr,
    ) -> Result<Result<Collected, BoxError>, Response<ResponseBody>> {
        let mut collecting = pin!(Limited::new(body, MAX_MESSAGE_BYTES).collect());
        tokio::select! {
            body = &mut collecting => return Ok(body),
            () = self.clock.sleep(PROMPT_BODY) => {}
        }
        let Some(_unfinished) = self.clients.wait_for_message(client, self.max_unfinished) else {
            let why = "too many messages of this client are unfinished";
            return Err(build_refusal(StatusCode::SERVICE_UNAVAILABLE, why));
        };
        tokio::select! {
            body = collecting => Ok(body),
            () = self.clock.sleep(LONGEST_BODY.saturating_sub(PROMPT_BODY)) => {
                Err(build_refusal(StatusCode::REQUEST_TIMEOUT, "the message came too slowly"))
            }
        }
    }

    /// Answers a complete message; a session that it begins may close an older session of its client.
    async fn call(
        &mut self,
        request: Request<Full<Bytes>>,
        client: IpAddr,
    ) -> Result<Response<ResponseBody>, std::convert::Infallible> {
        let session = |headers: &HeaderMap| {
            headers.get(SESSION).and_then(|id| id.to_str().ok()).map(Arc::<str>::from)
        };
        let (asked, is_delete) = (session(request.headers()), request.method() == Method::DELETE);
        let answer = self.door.call(request).await?;
        match (asked, session(answer.headers())) {
            (Some(asked), _) if is_delete => self.clients.close_session(&asked),
            (None, Some(begun)) => {
                for oldest in self.clients.open_session(client, begun) {
                    let _ = self.sessions.close_session(&oldest).await;
                }
            }
            _ => {}
        }
        Ok(answer)
    }
}

/// Returns the token of a header; the scheme is case-insensitive.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn build_refusal(status: StatusCode, why: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(Full::new(Bytes::from_static(why.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}
