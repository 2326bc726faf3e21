//! A connection of a program to the proxy.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, client, server};
use hyper_util::rt::{TokioIo, TokioTimer};
use layer0::code;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::gate::{HostGate, HostRefusal};
use super::notes::{Intervention, Interventions};
use super::request::{HostTarget, rewrite_for_host, target};

/// Maximum size of a request's head, in bytes, and the time limit of reading it.
const MAX_HEAD: usize = 32 * 1024;
const LONGEST_HEAD: Duration = Duration::from_secs(20);

type ProxyResponse = Response<Either<Full<Bytes>, Incoming>>;

/// State that the requests of a connection share.
struct ProxyConnection {
    gate: HostGate,
    notes: Arc<Interventions>,
    /// The connections to hosts for its requests.
    hosts: Mutex<JoinSet<()>>,
    tunnel: Mutex<Option<(OnUpgrade, TcpStream)>>,
}

/// Serves a connection until it closes.
pub(super) async fn serve(stream: TcpStream, gate: HostGate, notes: Arc<Interventions>) {
    let connection = Arc::new(ProxyConnection {
        gate,
        notes,
        hosts: Mutex::default(),
        tunnel: Mutex::default(),
    });
    let answering = Arc::clone(&connection);
    let service = service_fn(move |request| {
        let connection = Arc::clone(&answering);
        async move { Ok::<_, hyper::Error>(connection.answer(request).await) }
    });
    let served = server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(LONGEST_HEAD)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    let tunnel = connection.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
    // A program that closed its connection needs no report.
    if let (Ok(()), Some((upgrade, mut host))) = (served, tunnel)
        && let Ok(upgraded) = upgrade.await
    {
        let _ = copy_bidirectional(&mut TokioIo::new(upgraded), &mut host).await;
    }
}

impl ProxyConnection {
    async fn answer(&self, mut request: Request<Incoming>) -> ProxyResponse {
        let target = match target(&request) {
            Ok(target) => target,
            Err(HostRefusal::Denied(why)) => return self.deny("", why),
            Err(HostRefusal::Failed(why)) => return plain(StatusCode::BAD_REQUEST, why),
        };
        let HostTarget { host, port } = &target;
        let stream = match self.gate.connect(host, *port).await {
            Ok(stream) => stream,
            Err(HostRefusal::Denied(why)) => return self.deny(host, why),
            Err(HostRefusal::Failed(why)) => return plain(StatusCode::BAD_GATEWAY, why),
        };
        if request.method() == Method::CONNECT {
            let upgrade = hyper::upgrade::on(&mut request);
            *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some((upgrade, stream));
            return Response::new(Either::Left(Full::default()));
        }
        match self.forward(stream, rewrite_for_host(request, &target)).await {
            Ok(answer) => answer.map(Either::Right),
            Err(error) => {
                let why = format!("host {host} does not answer: {error}");
                plain(StatusCode::BAD_GATEWAY, why)
            }
        }
    }

    async fn forward(
        &self,
        stream: TcpStream,
        request: Request<Incoming>,
    ) -> hyper::Result<Response<Incoming>> {
        let (mut sender, driven) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
        self.drive(async move {
            // The response shows how it ended.
            let _ = driven.await;
        });
        sender.send_request(request).await
    }

    /// Drives the connection to a host while this connection is open.
    fn drive(&self, driven: impl Future<Output = ()> + Send + 'static) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        while hosts.try_join_next().is_some() {}
        hosts.spawn(driven);
    }

    fn deny(&self, host: &str, why: String) -> ProxyResponse {
        self.notes.add(Intervention::Denied { host: host.to_owned(), what: why.clone() });
        // A program that prints the text and ends well passes the code on, too.
        plain(StatusCode::FORBIDDEN, format!("{}: {why}", code::ENV_NETWORK_DENIED))
    }
}

fn plain(status: StatusCode, why: String) -> ProxyResponse {
    let mut answer = Response::new(Either::Left(Full::from(why + "\n")));
    *answer.status_mut() = status;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, text);
    answer
}
