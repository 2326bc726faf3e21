//! Connections that say nothing, or too little.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::bench::Bench;

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

async fn served(max_connections: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Bench::new().server().max_connections(max_connections);
    tokio::spawn(server.serve_http(listener, None, CancellationToken::new()));
    address
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// Asks for what is not there, and reads the status.
async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(GET).await.unwrap();
    read(stream).await
}

async fn read(stream: &mut TcpStream) -> String {
    let mut bytes = [0; 1_024];
    let length = stream.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..length]).lines().next().unwrap_or_default().to_owned()
}

/// Reads until the server closes the connection, in a time that no client waits.
async fn closed(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    tokio::select! {
        read = stream.read_to_string(&mut text) => drop(read.unwrap()),
        () = SystemClock.sleep(Duration::from_secs(3_600)) => panic!("it is open: {text}"),
    }
    text
}

/// Spec: Q10. A head that is not sent, or not to its end.
#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed() {
    let address = served(3).await;
    let (mut silent, mut half, mut used) =
        (connect(address).await, connect(address).await, connect(address).await);
    half.write_all(b"GET /mcp HTTP/1.1\r\nhost: ").await.unwrap();
    assert_eq!(ask(&mut used).await, "HTTP/1.1 404 Not Found");
    for stream in [&mut silent, &mut half, &mut used] {
        closed(stream).await;
    }
    let mut next = connect(address).await;
    assert_eq!(ask(&mut next).await, "HTTP/1.1 404 Not Found");
}

/// Spec: Q10. Messages that do not come take no more than a part of the connections.
#[tokio::test(start_paused = true)]
async fn unfinished_messages_leave_room_for_others() {
    let address = served(4).await;
    let head = format!("POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-length: 100\r\n\r\n{{");
    let mut unfinished = Vec::new();
    for _ in 0..4 {
        let mut stream = connect(address).await;
        stream.write_all(head.as_bytes()).await.unwrap();
        unfinished.push(stream);
    }
    let mut statuses = Vec::new();
    for stream in &mut unfinished {
        statuses.push(read(stream).await);
    }
    let refused = statuses.iter().filter(|status| status.contains("503")).count();
    assert_eq!(refused, 3, "{statuses:?}");
}

/// Spec: Q10
#[tokio::test(start_paused = true)]
async fn message_that_does_not_come_is_refused() {
    let address = served(1).await;
    let mut slow = connect(address).await;
    let head = format!("POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-length: 100\r\n\r\n{{");
    slow.write_all(head.as_bytes()).await.unwrap();
    let answer = closed(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout"), "{answer}");
}

/// Spec: Q10
#[tokio::test]
async fn connections_beyond_the_bound_wait() {
    let address = served(2).await;
    let (idle, mut used) = (connect(address).await, connect(address).await);
    let mut waiting = connect(address).await;
    waiting.write_all(GET).await.unwrap();
    for _ in 0..10 {
        assert_eq!(ask(&mut used).await, "HTTP/1.1 404 Not Found");
    }
    let early = waiting.try_read(&mut [0; 64]);
    assert!(early.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock));
    drop(idle);
    assert_eq!(read(&mut waiting).await, "HTTP/1.1 404 Not Found");
}
