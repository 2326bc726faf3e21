//! Bytes that a row speaks of, and what a provider makes of them.

use std::time::Duration;

use backstop_provider::{ModelResponse, ProviderError};
use layer0::code;
use layer0::failure::{Failure, Retry};
use layer0::message::StopReason;

use super::row::{FailureRow, code_of};
use crate::server::patient;
use crate::server::{KEY, Loopback, Reply, TOKEN, hello, send};
use crate::wire::Wire;

/// Bytes that a row speaks of, and what they must come to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sample {
    /// Names it in a message.
    pub label: String,
    /// The row that it is of.
    pub row: FailureRow,
    /// The condition as it is met here, where it is one of several of the row.
    pub says: String,
    /// The condition of the row that says how it comes inside a stream, where another row does.
    pub inside: Option<String>,
    /// What the server answers.
    pub reply: Reply,
    /// Does it only make sense for a request that streams?
    pub streamed: bool,
    /// Why it ended, where it is an answer and no failure.
    pub stops: Option<StopReason>,
    /// The code of the error; empty where it is none.
    pub code: &'static str,
    /// Can trying again help?
    pub retryable: bool,
    /// What in it names a wait, such as `retry-after: 7`.
    pub hint: Option<String>,
    /// The wait that it asks for and gets.
    pub retry_after: Option<Duration>,
}

/// What a provider made of a [`Sample`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A failure.
    Failed {
        /// The code.
        code: &'static str,
        /// What may be done.
        retry: Retry,
        /// The HTTP status, where the failure keeps it.
        status: Option<u16>,
    },
    /// An answer, which ended for this reason.
    Stopped(StopReason),
}

impl Sample {
    /// Sends it, whole and byte by byte, to a provider that streams and to one that does not, and
    /// returns what it came to each time.
    ///
    /// # Panics
    ///
    /// When that is not what the row says, when it is not the same each time, and when an error
    /// shows [`KEY`] or [`TOKEN`].
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
    /// Makes a sample of a reply and of the hint it gives.
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
            // What is not tried again is not transient, whatever it is called.
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
