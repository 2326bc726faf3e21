//! The part of HTTP/1.1 that a test server needs: requests with a length, one after the other.

use std::io;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{Ending, Reply};

/// A received request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// The method, such as `POST`.
    pub method: String,
    /// The path, with the query.
    pub path: String,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; `Null` if it is not JSON.
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

/// An open connection of a client.
pub(crate) struct Connection {
    stream: TcpStream,
    /// Received bytes of the next request.
    unread: Vec<u8>,
}

/// State of a connection after a reply.
pub(crate) enum After {
    /// It can serve another request.
    Open(Connection),
    /// Nothing more is sent, and it stays open.
    Hanging(Connection),
    Closed,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, unread: Vec::new() })
    }

    pub(crate) async fn read(&mut self) -> io::Result<Request> {
        let head_end = loop {
            if let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            self.read_more().await?;
        };
        let head = String::from_utf8_lossy(&self.unread[..head_end]).into_owned();
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
        let length = request.header("content-length").and_then(|text| text.parse().ok());
        let end = head_end + 4 + length.unwrap_or(0_usize);
        while self.unread.len() < end {
            self.read_more().await?;
        }
        let unread = self.unread.split_off(end);
        request.bytes = std::mem::replace(&mut self.unread, unread).split_off(head_end + 4);
        request.body = serde_json::from_slice(&request.bytes).unwrap_or_default();
        Ok(request)
    }

    async fn read_more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.unread).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Waits until the client closes a connection on which it sends nothing more.
    pub(crate) async fn until_closed(mut self) {
        while self.stream.read(&mut [0; 64]).await.is_ok_and(|bytes| bytes > 0) {}
    }

    /// Writes the reply; returns the state of the connection. It is closed if the client asked for that.
    pub(crate) async fn write(mut self, reply: &Reply, is_last: bool) -> io::Result<After> {
        if !reply.delay.is_zero() {
            SystemClock.sleep(reply.delay).await;
        }
        let sent = match reply.ending {
            Ending::Whole => reply.body.as_slice(),
            Ending::CutAt(at) | Ending::CloseAt(at) | Ending::ResetAt(at) | Ending::HangAt(at) => {
                reply.body.get(..at).unwrap_or(&reply.body)
            }
            Ending::HangBeforeHead => return Ok(After::Hanging(self)),
        };
        let mut head = format!("HTTP/1.1 {} Reply\r\n", reply.status);
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if is_last {
            head.push_str("connection: close\r\n");
        }
        let announced = if matches!(reply.ending, Ending::CutAt(_)) { sent } else { &reply.body };
        match reply.piece_bytes {
            Some(piece_bytes) => {
                head.push_str("transfer-encoding: chunked\r\n\r\n");
                self.stream.write_all(head.as_bytes()).await?;
                self.write_pieces(sent.chunks(piece_bytes.max(1)), reply.piece_delay).await?;
            }
            None => {
                head.push_str(&format!("content-length: {}\r\n\r\n", announced.len()));
                self.stream.write_all(&[head.as_bytes(), sent].concat()).await?;
            }
        }
        match reply.ending {
            Ending::Whole | Ending::CutAt(_) => {
                if reply.piece_bytes.is_some() {
                    self.stream.write_all(b"0\r\n\r\n").await?;
                }
                if !is_last {
                    return Ok(After::Open(self));
                }
                self.stream.shutdown().await?;
            }
            Ending::CloseAt(_) => self.stream.shutdown().await?,
            Ending::ResetAt(_) => {
                // Lets the client read the sent bytes: a reset discards unread bytes.
                SystemClock.sleep(Duration::from_millis(20)).await;
                self.stream.set_zero_linger()?;
            }
            Ending::HangAt(_) | Ending::HangBeforeHead => return Ok(After::Hanging(self)),
        }
        Ok(After::Closed)
    }

    /// Writes chunks one by one.
    async fn write_pieces(
        &mut self,
        pieces: std::slice::Chunks<'_, u8>,
        delay: Duration,
    ) -> io::Result<()> {
        for piece in pieces {
            if !delay.is_zero() {
                SystemClock.sleep(delay).await;
            }
            let length = format!("{:x}\r\n", piece.len());
            let chunk = [length.as_bytes(), piece, b"\r\n"].concat();
            self.stream.write_all(&chunk).await?;
        }
        Ok(())
    }
}
