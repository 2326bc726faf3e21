//! As much of HTTP/1.1 as a test server needs: one request a connection.

use std::io;

use clock::{Clock, SystemClock};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{Ending, Reply};

/// A request that came in.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The method, such as `POST`.
    pub method: String,
    /// The path, with the query.
    pub path: String,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; `Null` where it is not JSON.
    pub body: Value,
    /// The body, byte for byte.
    pub bytes: Vec<u8>,
}

impl Request {
    /// Returns the value of a header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Waits until the client closes a connection that it says nothing more on.
pub(crate) async fn until_closed(mut stream: TcpStream) {
    while stream.read(&mut [0; 64]).await.is_ok_and(|bytes| bytes > 0) {}
}

pub(crate) async fn read(stream: &mut TcpStream) -> io::Result<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let mut request = Request {
        method: first.next().unwrap_or_default(),
        path: first.next().unwrap_or_default(),
        headers: lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect(),
        body: Value::Null,
        bytes: Vec::new(),
    };
    let length = request.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = bytes.split_off(head_end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    request.body = serde_json::from_slice(&body).unwrap_or_default();
    request.bytes = body;
    Ok(request)
}

/// Writes a reply, and returns the connection where it stays open although nothing more comes.
pub(crate) async fn write(mut stream: TcpStream, reply: &Reply) -> io::Result<Option<TcpStream>> {
    stream.set_nodelay(true)?;
    if !reply.delay.is_zero() {
        SystemClock.sleep(reply.delay).await;
    }
    let sent = match reply.ending {
        Ending::Whole => reply.body.as_slice(),
        Ending::CutAt(at) | Ending::CloseAt(at) | Ending::ResetAt(at) | Ending::HangAt(at) => {
            reply.body.get(..at).unwrap_or(&reply.body)
        }
        Ending::HangBeforeHead => return Ok(Some(stream)),
    };
    let is_chunked = reply.piece_bytes.is_some();
    let mut head = format!("HTTP/1.1 {} Reply\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let announced = if matches!(reply.ending, Ending::CutAt(_)) { sent } else { &reply.body };
    head.push_str(&match is_chunked {
        true => "transfer-encoding: chunked\r\n\r\n".to_owned(),
        false => format!("content-length: {}\r\n\r\n", announced.len()),
    });
    stream.write_all(head.as_bytes()).await?;
    for piece in sent.chunks(reply.piece_bytes.unwrap_or(usize::MAX).max(1)) {
        if !reply.piece_delay.is_zero() {
            SystemClock.sleep(reply.piece_delay).await;
        }
        if is_chunked {
            stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
        }
        stream.write_all(piece).await?;
        if is_chunked {
            stream.write_all(b"\r\n").await?;
        }
        stream.flush().await?;
    }
    match reply.ending {
        Ending::Whole | Ending::CutAt(_) => {
            if is_chunked {
                stream.write_all(b"0\r\n\r\n").await?;
            }
            stream.shutdown().await?;
        }
        Ending::CloseAt(_) => stream.shutdown().await?,
        Ending::ResetAt(_) => {
            // Let the client read what was sent: a reset takes unread bytes away from it.
            SystemClock.sleep(std::time::Duration::from_millis(20)).await;
            stream.set_zero_linger()?;
        }
        Ending::HangAt(_) | Ending::HangBeforeHead => return Ok(Some(stream)),
    }
    Ok(None)
}
