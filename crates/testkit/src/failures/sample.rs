//! Bytes of a row, and the expected result of a provider.

use std::time::Duration;

use backstop_provider::{ModelResponse, ProviderError};
use layer0::code;
use layer0::failure::{Failure, Retry};
use layer0::message::StopReason;

use super::row::{FailureRow, code_of};
use crate::server::patient;
use crate::server::{KEY, Loopback, Reply, TOKEN, hello, send};
use crate::wire::Wire;

/// Bytes of a row, with the expected result.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sample {
    /// Name of the sample in messages.
    pub label: String,
    /// The row of the sample.
    pub row: FailureRow,
    /// The condition of this sample, if the row has several.
    pub says: String,
    /// The condition of another row that determines its form inside a stream.
    pub inside: Option<String>,
    /// Reply of the server.
    pub reply: Reply,
    /// Whether it makes sense only for a streaming request.
    pub streamed: bool,
    /// Stop reason, if it is an answer and not a failure.
    pub stops: Option<StopReason>,
    /// Code of the error; empty if there is none.
    pub code: &'static str,
    /// Whether a retry can help.
    pub retryable: bool,
    /// The part that names a wait, such as `retry-after: 7`.
    pub hint: Option<String>,
    /// The requested and resulting wait.
    pub retry_after: Option<Duration>,
}

/// The result of a provider for a [`Sample`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A failure.
    Failed {
        /// The code.
        code: &'static str,
        /// The retry answer.
        retry: Retry,
        /// The HTTP status, if the failure has it.
        status: Option<u16>,
    },
    /// An answer that stopped for this reason.
    Stopped(StopReason),
}

impl Sample {
    /// Sends it, whole and byte by byte, to a provider that streams and to one that does not, and returns the result.
    ///
    /// # Panics
    ///
    /// If the result differs from that of the row, if it is not the same each time, or if an error shows [`KEY`] or
    /// [`TOKEN`].
    pub async fn verdict(&self, wire: &Wire) -> Verdict {
        let ways = [None, Some(1)].map(|piece_bytes| [true, false].map(|way| (piece_bytes, way)));
        let ways = ways.into_iter().flatten().filter(|(_, streamed)| *streamed || !self.streamed);
        let reply = |piece_bytes| Reply { piece_bytes, ..self.reply.clone() };
        let server = Loopback::replying(ways.clone().map(|(piece_bytes, _)| reply(piece_bytes)));
        let provider = (wire.provider)(&server.url(), patient());
        let mut verdicts = Vec::new();
        for (_, streamed) in ways {
            verdicts.push(self.judge(send(&*provider, &hello(), streamed).await, streamed));
        }
        let first = verdicts[0].clone();
        let same = verdicts.iter().all(|verdict| *verdict == first);
        assert!(same, "{}: splitting and streaming make no difference: {verdicts:?}", self.label);
        first
    }

    fn judge(&self, result: Result<ModelResponse, ProviderError>, streamed: bool) -> Verdict {
        let context = format!("{} (streamed: {streamed}): {result:?}", self.label);
        assert!(!context.contains(KEY) && !context.contains(TOKEN), "{context}");
        let error = match result {
            Err(error) => error,
            Ok(answer) => {
                assert_eq!(Some(&answer.stop_reason), self.stops.as_ref(), "{context}");
                return Verdict::Stopped(answer.stop_reason);
            }
        };
        assert_eq!(self.stops, None, "{context}");
        let retry = match self.retry_after {
            _ if !self.retryable => Retry::Never,
            Some(wait) => Retry::After(wait),
            None => Retry::Backoff,
        };
        assert_eq!((error.code(), error.retry()), (self.code, retry), "{context}");
        assert_eq!(error.is_retryable(), self.retryable, "{context}");
        Verdict::Failed { code: error.code(), retry: error.retry(), status: error.status() }
    }
}

impl FailureRow {
    /// Returns a sample of a reply with its hint.
    pub(super) fn sample(
        &self,
        label: &str,
        reply: Reply,
        hint: Option<(&'static str, &'static str, Duration)>,
    ) -> Sample {
        let label = match label {
            "" => self.condition.as_str(),
            label => label,
        };
        let reply = match hint {
            Some((name, value, _)) => reply.header(name, value),
            None => reply,
        };
        let code = match self.cls.as_str() {
            // A failure that is not retried is not transient, whatever its name.
            "conflict" if self.retry == false => code::PROVIDER_INVALID_REQUEST,
            class => code_of(class),
        };
        let header = hint.map(|(name, value, _)| format!("{name}: {value}"));
        let hinted = header.as_ref().map_or(String::new(), |header| format!(" [{header}]"));
        Sample {
            label: format!("{} {} {label}{hinted}", self.provider, self.http),
            row: self.clone(),
            says: self.condition.clone(),
            inside: None,
            reply,
            streamed: self.in_stream,
            stops: None,
            code,
            retryable: self.retry == true,
            hint: header,
            retry_after: hint.map(|(_, _, wait)| wait),
        }
    }
}
