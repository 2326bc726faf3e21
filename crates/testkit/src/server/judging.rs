//! Rules for requests.

use std::fmt::{Debug, Formatter};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::server::{Reply, Request};

type Judge = Box<dyn Fn(&Request) -> Option<Reply> + Send + Sync>;

/// The judge of requests, and the refusals so far.
#[derive(Default)]
pub(super) struct Judging {
    judge: OnceLock<Judge>,
    refused: Mutex<Vec<String>>,
}

impl Judging {
    /// Sets the judge, once.
    pub(super) fn begin(&self, judge: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) {
        let _ = self.judge.set(Box::new(judge));
    }

    /// Returns the refusal of a request, and stores it.
    pub(super) fn refuse(&self, request: &Request) -> Option<Reply> {
        let reply = self.judge.get()?(request)?;
        let told = String::from_utf8_lossy(&reply.body).into_owned();
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(told);
        Some(reply)
    }

    /// Returns the refusals so far.
    pub(super) fn refused(&self) -> Vec<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Debug for Judging {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Judging").field("refused", &self.refused).finish_non_exhaustive()
    }
}
