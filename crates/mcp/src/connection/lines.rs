//! Messages of a program: one per line, of bounded length.

mod reader;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{BoxFuture, Clock, SystemClock};
use layer0::text::replace_lone_surrogates;
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;
use tokio_util::sync::DropGuard;

use self::reader::{LineReader, OutputLine};
use super::program::KeptProgram;
use super::said;
use super::stderr::StderrTail;
use super::wire::{self, Wire};
use crate::MAX_MESSAGE_BYTES;
use crate::fault::McpFault;
use crate::spawn::{Input, Output};

/// Time for which a server may exit and write its last output after it closed its standard output.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Transport over a program's standard input and output.
///
/// A line that is no message of the protocol is skipped. An unreadable message fails the calls that wait, and reading
/// continues with the next line.
pub(super) struct StdioTransport {
    reader: LineReader,
    writer: Arc<Mutex<Input>>,
    program: Arc<KeptProgram>,
    _killed: DropGuard,
    stderr: Arc<StderrTail>,
    wire: Arc<Wire>,
    clock: Arc<dyn Clock>,
    backlog: VecDeque<ServerJsonRpcMessage>,
    /// The request that probes for the revision, and its timeout.
    probe: Option<(RequestId, BoxFuture)>,
    probe_timeout: Duration,
    is_over: bool,
}

impl StdioTransport {
    pub(super) fn new(
        (writer, stdout): (Arc<Mutex<Input>>, Output),
        program: Arc<KeptProgram>,
        stderr: Arc<StderrTail>,
        wire: Arc<Wire>,
        (clock, probe_timeout): (Arc<dyn Clock>, Duration),
    ) -> Self {
        Self {
            reader: LineReader::new(stdout),
            writer,
            _killed: program.guard(),
            program,
            stderr,
            wire,
            clock,
            backlog: VecDeque::new(),
            probe: None,
            probe_timeout,
            is_over: false,
        }
    }

    /// Handles a line. A message that is cut at the end of all output is lost with the program.
    fn take(&mut self, line: &[u8], has_end: bool) {
        let text = String::from_utf8_lossy(line);
        let text = replace_lone_surrogates(&text);
        // Concurrent writers may lose a line end between two messages.
        let mut values = serde_json::Deserializer::from_str(&text).into_iter::<&RawValue>();
        loop {
            let rest = &text[values.byte_offset()..];
            match values.next() {
                None => return,
                Some(Ok(message)) => {
                    let messages = wire::messages(message).into_iter();
                    let read = messages.filter_map(|message| self.wire.read(message, None));
                    self.backlog.extend(read);
                }
                Some(Err(_)) if has_end && wire::is_cut_message(rest) => {
                    return self.answer_all(&self.wire.not_json(rest));
                }
                // Other text is no message: programs print what they like.
                Some(Err(_)) => {
                    return tracing::debug!(
                        bytes = rest.len(),
                        "output that is no message is skipped"
                    );
                }
            }
        }
    }

    /// Fails the waiting requests, and continues to read.
    fn fail(&mut self, why: &str) {
        self.answer_all(&McpFault::Unreadable(why.to_owned()));
    }

    fn answer_all(&mut self, fault: &McpFault) {
        // `rmcp` receives an answer; the call finds the fault in the wire's state.
        let failed = self.wire.fail_all(fault).into_iter().map(|id| {
            ServerJsonRpcMessage::error(ErrorData::internal_error("no answer", None), Some(id))
        });
        self.backlog.extend(failed);
    }

    /// Handles the end of the program's output.
    async fn end(&mut self) {
        // The wait is for a real process, so it uses the system clock.
        let why = {
            let ended = async {
                let end = self.program.wait_for_end().await;
                self.stderr.wait_for_end().await;
                end
            };
            tokio::select! {
                end = ended => end,
                () = SystemClock.sleep(LAST_WORDS) => "closed its output".to_owned(),
            }
        };
        let why = self.stderr.after(&why);
        self.wire.close(&*why);
        self.answer_all(&McpFault::Lost(why));
        self.is_over = true;
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = LineError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), LineError>> + Send + 'static {
        let id = self.wire.begin(&message);
        if let ClientJsonRpcMessage::Request(request) = &message {
            let is_probe = wire::is_probe(&request.request);
            self.probe =
                is_probe.then(|| (request.id.clone(), self.clock.sleep(self.probe_timeout)));
        }
        let line = said::write_message(&message).map(|mut line| {
            line.push(b'\n');
            line
        });
        let (writer, wire) = (Arc::clone(&self.writer), Arc::clone(&self.wire));
        async move {
            let line = line.map_err(|error| LineError(io::Error::from(error)))?;
            if wire.close_reason().is_some() {
                return Err(LineError(io::ErrorKind::BrokenPipe.into()));
            }
            let mut writer = writer.lock().await;
            if let Some(id) = &id {
                wire.mark_left(id);
            }
            let written = async {
                writer.write_all(&line).await?;
                writer.flush().await
            };
            written.await.map_err(|error| {
                // A line without its end is no request.
                if let Some(id) = &id {
                    wire.never_left(id);
                }
                LineError(error)
            })
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.backlog.pop_front() {
                return Some(message);
            }
            if self.is_over {
                return None;
            }
            let line = tokio::select! {
                line = self.reader.next() => line,
                id = overdue(&mut self.probe) => {
                    let unknown = self.wire.unknown(&id);
                    self.backlog.push_back(unknown);
                    continue;
                }
            };
            match line {
                OutputLine::Whole(line) => self.take(&line, true),
                OutputLine::Unended(line) => self.take(&line, false),
                OutputLine::TooLong => {
                    self.fail(&format!("the answer is larger than {MAX_MESSAGE_BYTES} bytes"));
                }
                OutputLine::End => self.end().await,
            }
        }
    }

    async fn close(&mut self) -> Result<(), LineError> {
        self.wire.close("was let go");
        self.program.kill();
        Ok(())
    }
}

/// Completes when the probe times out.
async fn overdue(probe: &mut Option<(RequestId, BoxFuture)>) -> RequestId {
    match probe {
        Some((id, wait)) => {
            wait.await;
            let id = id.clone();
            *probe = None;
            id
        }
        None => std::future::pending().await,
    }
}

/// Error of writing a line.
#[derive(Debug, thiserror::Error)]
#[error("writing to the server failed: {0}")]
pub(crate) struct LineError(io::Error);
