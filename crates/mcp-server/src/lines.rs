//! Messages on a pair of streams: one per line, of bounded length.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use layer0::text::replace_lone_surrogates;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::http_door::MAX_MESSAGE_BYTES;
use crate::private_keys::{PRIVATE_KEY, has_private_key};

/// Maximum number of refusals that the client has not read yet. Its input waits for them.
const MAX_REFUSALS: usize = 16;

/// Transport of a server whose client writes lines. A request that cannot be read is answered with an error.
pub(crate) struct LineTransport<R, W> {
    reader: BufReader<R>,
    /// The beginning of the next line.
    line: Vec<u8>,
    /// The further messages of a batch, in order.
    batch: VecDeque<Vec<u8>>,
    /// Whether the line is too long; its rest is skipped.
    is_too_long: bool,
    writer: Arc<Mutex<W>>,
    /// Answers to lines that are no messages.
    refusals: JoinSet<()>,
    /// Cancelled at the end of the input.
    ended: CancellationToken,
}

impl<R: AsyncRead + Unpin, W> LineTransport<R, W> {
    pub(crate) fn new(read: R, write: W, ended: CancellationToken) -> Self {
        Self {
            reader: BufReader::new(read),
            line: Vec::new(),
            batch: VecDeque::new(),
            is_too_long: false,
            writer: Arc::new(Mutex::new(write)),
            refusals: JoinSet::new(),
            ended,
        }
    }

    /// Reads the next message, from a line or from a batch; `None` at the end of the input. A dropped future loses
    /// nothing.
    async fn next_message(&mut self) -> Option<Result<Vec<u8>, Refusal>> {
        if let Some(message) = self.batch.pop_front() {
            return Some(Ok(message));
        }
        let line = self.next_line().await?;
        let batch = line.as_ref().ok().and_then(|line| split_batch(line));
        match batch {
            Some(messages) => {
                self.batch.extend(messages);
                Some(Ok(self.batch.pop_front().unwrap_or_default()))
            }
            None => Some(line),
        }
    }

    /// Reads the next line; `None` at the end of the input. A dropped future loses nothing.
    async fn next_line(&mut self) -> Option<Result<Vec<u8>, Refusal>> {
        loop {
            let read = self.reader.fill_buf().await.unwrap_or_default();
            let (is_end, end) = (read.is_empty(), read.iter().position(|byte| *byte == b'\n'));
            let piece = &read[..end.unwrap_or(read.len())];
            self.is_too_long |= self.line.len() + piece.len() > MAX_MESSAGE_BYTES;
            if self.is_too_long {
                self.line.clear();
            } else {
                self.line.extend_from_slice(piece);
            }
            let taken = piece.len() + usize::from(end.is_some());
            self.reader.consume(taken);
            if is_end && self.line.is_empty() {
                return None;
            }
            if is_end || end.is_some() {
                let line = std::mem::take(&mut self.line);
                return Some(match std::mem::take(&mut self.is_too_long) {
                    true => Err(Refusal::too_long()),
                    false => Ok(line),
                });
            }
        }
    }
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let writer = Arc::clone(&self.writer);
        let line = serde_json::to_vec(&message);
        async move { write_line(&writer, line?).await }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            while self.refusals.len() >= MAX_REFUSALS {
                self.refusals.join_next().await;
            }
            let Some(line) = self.next_message().await else {
                self.ended.cancel();
                return None;
            };
            let refusal = match line.map(|line| read_message(&line)) {
                Ok(Ok(message)) => return Some(message),
                Ok(Err(None)) => continue,
                Ok(Err(Some(refusal))) | Err(refusal) => refusal,
            };
            let writer = Arc::clone(&self.writer);
            // This future may be dropped, and the answer must be written whole.
            self.refusals.spawn(async move {
                let _ = write_line(&writer, refusal.0).await;
            });
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        while self.refusals.join_next().await.is_some() {}
        self.writer.lock().await.shutdown().await
    }
}

async fn write_line<W: AsyncWrite + Unpin>(writer: &Mutex<W>, mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    let mut writer = writer.lock().await;
    writer.write_all(&line).await?;
    writer.flush().await
}

/// The answer to a line that is no message, as JSON.
struct Refusal(Vec<u8>);

impl Refusal {
    fn new(id: Option<&RawValue>, code: ErrorCode, why: &str) -> Self {
        let error = json!({ "code": code.0, "message": why });
        let id = id.map_or("null", RawValue::get);
        Self(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into_bytes())
    }

    fn too_long() -> Self {
        let why = format!("the message is larger than {MAX_MESSAGE_BYTES} bytes");
        Self::new(None, ErrorCode::INVALID_REQUEST, &why)
    }
}

/// Returns the messages of a batch; `None` if the line is none. Each message is answered by itself.
fn split_batch(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let text = String::from_utf8_lossy(line);
    let messages: Vec<&RawValue> = serde_json::from_str(text.trim_matches('\u{feff}')).ok()?;
    let messages = messages.into_iter().map(|message| message.get().as_bytes().to_vec());
    Some(messages.collect::<Vec<_>>()).filter(|messages| !messages.is_empty())
}

/// The parts of a message that show whether it needs an answer.
#[derive(Deserialize)]
struct MessageHead<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

/// Reads a message. A line that is none is refused, unless it needs no answer: it is blank, a notification or an answer.
/// Invalid UTF-8, and escapes of half a surrogate pair, become U+FFFD.
fn read_message(line: &[u8]) -> Result<ClientJsonRpcMessage, Option<Refusal>> {
    let text = String::from_utf8_lossy(line);
    let text = replace_lone_surrogates(text.trim_matches(['\u{feff}', ' ', '\t', '\r']));
    if text.is_empty() {
        return Err(None);
    }
    let error = match serde_json::from_str(&text) {
        _ if has_private_key(&text) => PRIVATE_KEY.to_owned(),
        Ok(message) => return Ok(message),
        Err(error) => format!("the message cannot be read: {error}"),
    };
    if !text.starts_with('{') {
        return Err(Some(Refusal::new(None, ErrorCode::PARSE_ERROR, &error)));
    }
    match serde_json::from_str::<MessageHead<'_>>(&text) {
        Ok(MessageHead { id: Some(id), result: None, error: None }) => {
            Err(Some(Refusal::new(Some(id), ErrorCode::INVALID_REQUEST, &error)))
        }
        Ok(_) => Err(None),
        Err(_) => Err(Some(Refusal::new(None, ErrorCode::PARSE_ERROR, &error))),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

    /// Gives a server these lines in pieces of one byte; returns the number of messages, and its answers.
    async fn serve(lines: &[u8]) -> (usize, Vec<serde_json::Value>) {
        let (ours, mut theirs) = duplex(1);
        let (answers, mut read) = duplex(1_000_000);
        let ended = CancellationToken::new();
        let mut transport = LineTransport::new(ours, answers, ended.clone());
        let writing = async {
            theirs.write_all(lines).await.unwrap();
            drop(theirs);
        };
        let reading = async {
            let mut count = 0;
            while transport.receive().await.is_some() {
                count += 1;
            }
            transport.close().await.unwrap();
            drop(transport);
            count
        };
        let ((), count) = tokio::join!(writing, reading);
        assert!(ended.is_cancelled());
        let mut text = String::new();
        read.read_to_string(&mut text).await.unwrap();
        (count, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    /// Spec: Q10
    #[tokio::test]
    async fn unreadable_requests_are_answered() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for (arguments, id) in [
            (&*format!(r#"{{"x":{deep}}}"#), json!(5)),
            ("{\"x\":\"\t\"}", json!(null)),
            (r#"{"x":"#, json!(null)),
            (r#"{"x":{"$serde_json::private::RawValue":"\"hi\""}}"#, json!(5)),
        ] {
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{{"name":"a","arguments":{arguments}}}}}"#
            );
            let (count, answers) = serve(format!("{call}\n{PING}\n").as_bytes()).await;
            assert_eq!((count, answers.len()), (1, 1), "{arguments}: {answers:?}");
            assert_eq!(answers[0]["id"], id, "{arguments}");
            let code = if id.is_null() { -32700 } else { -32600 };
            assert_eq!(answers[0]["error"]["code"], code, "{arguments}");
        }
    }

    /// Spec: Q10
    #[tokio::test]
    async fn messages_of_a_batch_are_read_apart() {
        let broken = r#"{"jsonrpc":"2.0","id":7,"method":null}"#;
        let (count, answers) =
            serve(format!("[{PING},{broken},{PING}]\n{PING}\n").as_bytes()).await;
        assert_eq!((count, answers.len()), (3, 1), "{answers:?}");
        assert_eq!((&answers[0]["id"], &answers[0]["error"]["code"]), (&json!(7), &json!(-32600)));
        let (count, answers) = serve(format!("[]\n[[{PING},{PING}]]\n").as_bytes()).await;
        assert_eq!((count, answers.len()), (0, 2), "{answers:?}");
        assert!(answers.iter().all(|answer| answer["id"].is_null()), "{answers:?}");
    }

    /// Spec: Q10
    #[tokio::test]
    async fn refusals_that_nobody_reads_are_limited() {
        let (answers, unread) = duplex(1);
        let lines = io::Cursor::new("{\n".repeat(1_000));
        let mut transport = LineTransport::new(lines, answers, CancellationToken::new());
        tokio::select! {
            biased;
            _ = transport.receive() => panic!("the input is not read to its end"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(transport.refusals.len(), MAX_REFUSALS);
        drop(unread);
        assert!(transport.receive().await.is_none());
    }

    /// Spec: Q10
    #[tokio::test]
    async fn lines_without_a_request_need_no_answer() {
        let ignored = "\n\r\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/odd\",\"params\":7}\n\
            {\"jsonrpc\":\"2.0\",\"id\":9,\"result\":1e400}\n{}\n";
        let (count, answers) = serve(format!("\u{feff}{PING}\n{ignored}{PING}").as_bytes()).await;
        assert!(answers.is_empty(), "{answers:?}");
        assert!(count >= 2, "{count}");
    }

    /// Spec: Q10
    #[tokio::test]
    async fn half_a_character_is_replaced() {
        let call = |text: &[u8]| {
            let head = br#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"a","arguments":{"x":""#;
            [head.as_slice(), text, b"\"}}}"].concat()
        };
        for text in [&br"\ud83d"[..], b"caf\xe9"] {
            let message = read_message(&call(text)).ok().unwrap();
            let sent = serde_json::to_string(&message).unwrap();
            assert!(sent.contains('\u{fffd}'), "{sent}");
        }
    }

    /// Spec: Q10
    #[tokio::test]
    async fn long_lines_are_refused_and_skipped() {
        let (ours, theirs) = duplex(64 * 1024);
        let (answers, mut read) = duplex(1_000);
        let mut transport = LineTransport::new(ours, answers, CancellationToken::new());
        let writing = async move {
            let mut theirs = theirs;
            theirs.write_all(&vec![b'x'; MAX_MESSAGE_BYTES + 1]).await.unwrap();
            theirs.write_all(format!("\n{PING}\n").as_bytes()).await.unwrap();
        };
        let reading = async {
            assert!(transport.receive().await.is_some());
            assert!(transport.receive().await.is_none());
            transport.close().await.unwrap();
            drop(transport);
        };
        tokio::join!(writing, reading);
        let mut text = String::new();
        read.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("is larger than") && text.contains("\"id\":null"), "{text}");
    }
}
