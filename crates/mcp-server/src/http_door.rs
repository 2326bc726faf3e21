//! The way in over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::error::ServeError;
use crate::handler::Handler;

/// The most bytes of a message of a client.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Where the server is.
const PATH: &str = "/mcp";

type Body = BoxBody<Bytes, std::convert::Infallible>;
type Door = StreamableHttpService<Handler, LocalSessionManager>;

/// Accepts connections until it is stopped.
pub(crate) async fn serve(
    handler: Handler,
    listener: TcpListener,
    token: Option<String>,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let address = listener.local_addr().map_err(ServeError::Socket)?;
    if token.is_none() && !address.ip().is_loopback() {
        return Err(ServeError::NoToken(address));
    }
    let door = door(handler, address, token.is_some(), &stop);
    let token: Option<Arc<[u8]>> = token.map(|token| digest(token.as_bytes()).into());
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return Ok(()),
        };
        let stream = match stream {
            Ok((stream, _)) => stream,
            // The client was gone again, or there are too many open files for now.
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::task::yield_now().await;
                continue;
            }
        };
        let (door, token) = (door.clone(), token.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| answer(door.clone(), token.clone(), request));
            let served = Builder::new(TokioExecutor::new());
            if let Err(error) = served.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(error, "a connection ended early");
            }
        });
    }
}

fn door(handler: Handler, address: SocketAddr, has_token: bool, stop: &CancellationToken) -> Door {
    let config = StreamableHttpServerConfig::default()
        .with_cancellation_token(stop.child_token())
        .with_max_request_body_bytes(MAX_MESSAGE_BYTES)
        .enforce_origin_validation();
    // A page that a browser shows could reach a server of this machine by a name of its own; one that has the
    // token may come by any name.
    let config = match has_token && !address.ip().is_loopback() {
        true => config.disable_allowed_hosts(),
        false => config,
    };
    StreamableHttpService::new(move || Ok(handler.clone()), Arc::default(), config)
}

async fn answer(
    mut door: Door,
    token: Option<Arc<[u8]>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, std::convert::Infallible> {
    if request.uri().path() != PATH {
        return Ok(refused(StatusCode::NOT_FOUND, "the server is at /mcp"));
    }
    if let Some(token) = token {
        let given = request.headers().get(header::AUTHORIZATION);
        let given = given.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        // Digests are compared, so that the time taken says nothing of the token.
        if given.is_none_or(|given| digest(given)[..] != *token) {
            let mut response = refused(StatusCode::UNAUTHORIZED, "a token is required");
            let scheme = header::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
            return Ok(response);
        }
    }
    door.call(request).await
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn refused(status: StatusCode, why: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(why.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}
