use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use crate::server::http::{After, Connection};
use crate::server::judging::Judging;
use crate::server::private_keys::PrivateKeys;
use crate::server::{Reply, Request};

/// A server on `127.0.0.1` that answers by plan and records its requests. Connections are kept open between requests,
/// as by real servers.
///
/// A body with a key that only `serde_json` writes is refused, and dropping the server then panics: such a key is a raw
/// value that was written through another type, which a reader of that library cannot see.
#[derive(Debug)]
pub struct Loopback {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    hangs: watch::Receiver<Hangs>,
    private_keys: Arc<PrivateKeys>,
    judging: Arc<Judging>,
    shutdown: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Counts of hanging replies.
#[derive(Debug, Default)]
struct Hangs {
    begun: usize,
    /// Replies whose connection the client closed.
    left: usize,
}

type Handler = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

impl Loopback {
    /// Starts a server that gives these replies, one per request, in order. A further request is answered with status
    /// 400 and the reason.
    ///
    /// # Panics
    ///
    /// If no port of the loopback interface can be bound.
    #[must_use]
    pub fn replying(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Mutex<VecDeque<Reply>> = Mutex::new(replies.into_iter().collect());
        Self::serving(move |_| {
            lock(&replies).pop_front().unwrap_or_else(|| Reply::refusal("no reply is left"))
        })
    }

    /// Starts a server that calls `handler` for each reply.
    ///
    /// # Panics
    ///
    /// If no port of the loopback interface can be bound.
    #[must_use]
    pub fn serving(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start(Arc::new(handler)).expect("a port of the loopback interface can be bound")
    }

    fn start(handler: Handler) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (shutdown, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let seen = Arc::clone(&requests);
        let (told, hangs) = watch::channel(Hangs::default());
        let private_keys = Arc::new(PrivateKeys::default());
        let keys = Arc::clone(&private_keys);
        let judging = Arc::new(Judging::default());
        let judged = Arc::clone(&judging);
        let thread = thread::Builder::new().name("loopback".into()).spawn(move || {
            // Ends with the signal, or with the sender; the runtime closes open connections.
            runtime.block_on(async {
                let shared =
                    Shared { handler, requests: seen, hangs: Arc::new(told), keys, judged };
                tokio::spawn(accept(listener, shared));
                let _ = stopped.await;
            });
        })?;
        let (shutdown, thread) = (Some(shutdown), Some(thread));
        Ok(Self { address, requests, hangs, private_keys, judging, shutdown, thread })
    }

    /// Accepts bodies with keys that only `serde_json` writes, for tests whose model itself writes such a key.
    #[must_use]
    pub fn taking_private_keys(self) -> Self {
        self.private_keys.take();
        self
    }

    /// Refuses each request for which `judge` returns a reply. Dropping the server then panics, with the refusals.
    #[must_use]
    pub fn judged_by(
        self,
        judge: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        self.judging.begin(judge);
        self
    }

    /// Returns `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the requests so far, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.requests).clone()
    }

    /// Returns the number of requests.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.requests).len()
    }

    /// Waits until this many replies hang, or did.
    pub async fn hangs(&self, count: usize) {
        // This fails only when the server has ended, and `self` keeps it running.
        let _ = self.hangs.clone().wait_for(|hangs| hangs.begun >= count).await;
    }

    /// Waits until clients have closed the connections of this many hanging replies.
    pub async fn is_left(&self, count: usize) {
        let _ = self.hangs.clone().wait_for(|hangs| hangs.left >= count).await;
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        drop(self.shutdown.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        assert!(
            !self.private_keys.were_sent() || thread::panicking(),
            "a request had a key that only serde_json writes; the server was at {}",
            self.address
        );
        let refused = self.judging.refused();
        assert!(refused.is_empty() || thread::panicking(), "the endpoint refuses: {refused:?}");
    }
}

/// State that connections share.
#[derive(Clone)]
struct Shared {
    handler: Handler,
    requests: Arc<Mutex<Vec<Request>>>,
    hangs: Arc<watch::Sender<Hangs>>,
    keys: Arc<PrivateKeys>,
    judged: Arc<Judging>,
}

async fn accept(listener: std::net::TcpListener, shared: Shared) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve(stream, shared.clone()));
    }
}

/// Answers the requests of one connection, which stays open as long as its replies end properly.
async fn serve(stream: TcpStream, shared: Shared) -> io::Result<()> {
    let Shared { handler, requests, hangs, keys, judged } = shared;
    let mut connection = Connection::new(stream)?;
    loop {
        let request = connection.read().await?;
        let is_last =
            request.header("connection").is_some_and(|said| said.eq_ignore_ascii_case("close"));
        // Chosen under the lock, so that the record and the replies have the same order.
        let reply = {
            let mut requests = lock(&requests);
            let reply = match keys.refuse(&request.bytes) {
                true => Reply::refusal("the body has a key that only serde_json writes"),
                false => judged.refuse(&request).unwrap_or_else(|| handler(&request)),
            };
            requests.push(request);
            reply
        };
        connection = match connection.write(&reply, is_last).await? {
            After::Open(connection) => connection,
            After::Closed => return Ok(()),
            After::Hanging(connection) => {
                hangs.send_modify(|hangs| hangs.begun += 1);
                connection.until_closed().await;
                hangs.send_modify(|hangs| hangs.left += 1);
                return Ok(());
            }
        };
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use crate::server::Ending;

    use super::*;

    fn ask(server: &Loopback) -> String {
        exchange(
            server,
            "POST /x HTTP/1.1\r\nConnection: close\r\nContent-Length: 10\r\n\r\n{\"a\": [1]}",
        )
    }

    /// Sends bytes, and reads until the server closes the connection.
    fn exchange(server: &Loopback, sent: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(sent.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn replies_come_in_order() {
        let server = Loopback::replying([Reply::events("data: e\n\n").split(1)]);
        let first = ask(&server);
        assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
        assert!(first.contains("\r\n1\r\nd\r\n1\r\na\r\n"), "{first}");
        let second = ask(&server);
        assert!(second.starts_with("HTTP/1.1 400 ") && second.contains("no reply is left"));
        assert_eq!(server.count(), 2);
        assert_eq!(server.requests()[0].path, "/x");
    }

    #[test]
    fn connection_serves_until_failure_or_close() {
        let again = "POST /again HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
        let last = "POST /last HTTP/1.1\r\nConnection: Close\r\n\r\n";
        let whole = || Reply::html(200);
        #[track_caller]
        fn check(replies: [Reply; 3], sent: &str, answers: usize) {
            let server = Loopback::replying(replies);
            let answer = exchange(&server, sent);
            assert_eq!(answer.matches("HTTP/1.1 200").count(), answers, "{answer}");
            assert_eq!(server.count(), answers);
        }
        let three = [again, again, last].concat();
        check([whole(), whole().split(3), whole()], &three, 3);
        check([whole(), whole(), whole()], &[again, last, again].concat(), 2);
        check([whole().ending(Ending::CutAt(3)), whole(), whole()], &three, 3);
        check([whole(), whole().ending(Ending::CloseAt(3)), whole()], &three, 2);
    }

    #[test]
    fn private_keys_fail_the_test() {
        let body = "{\"$serde_json::private::RawValue\":\"1\"}";
        let head = "POST /x HTTP/1.1\r\nConnection: close\r\nContent-Length: ";
        let sent = format!("{head}{}\r\n\r\n{body}", body.len());
        let server = Loopback::replying([Reply::html(200)]);
        assert!(exchange(&server, &sent).starts_with("HTTP/1.1 400 "));
        let dropped = std::panic::AssertUnwindSafe(move || drop(server));
        assert!(std::panic::catch_unwind(dropped).is_err());
        let server = Loopback::replying([Reply::html(200)]).taking_private_keys();
        assert!(exchange(&server, &sent).starts_with("HTTP/1.1 200 "));
    }

    #[test]
    fn a_hanging_server_ends_when_it_is_dropped() {
        let server = Loopback::replying([Reply::html(200).ending(Ending::HangBeforeHead)]);
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        drop(server);
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
}
