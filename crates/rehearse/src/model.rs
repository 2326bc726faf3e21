//! The scripted model, with a record of its requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use backstop_provider::{
    ModelRequest, ModelResponse, ModelSettings, Provider, ProviderError, ScriptExhausted,
    ScriptedProvider, UnsupportedSetting,
};
use layer0::failure::sources;
use layer0::message::Message;
use serde::Serialize;

/// A request that the model received in one attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SentRequest {
    messages: Vec<Arc<Message>>,
    tools: Vec<Arc<str>>,
}

/// The requests of one run to its model. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<RequestLog>>);

#[derive(Debug, Default)]
struct RequestLog {
    requests: Vec<SentRequest>,
    /// Number of all requests, including those that `take` removed.
    count: usize,
    is_exhausted: bool,
}

impl Requests {
    /// Removes and returns the requests until now, in order.
    pub(crate) fn take(&self) -> Vec<SentRequest> {
        std::mem::take(&mut self.lock().requests)
    }

    /// Returns the number of requests until now.
    pub(crate) fn count(&self) -> usize {
        self.lock().count
    }

    /// Returns whether the model was asked more often than it has answers.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.lock().is_exhausted
    }

    fn lock(&self) -> MutexGuard<'_, RequestLog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Provider that records each request and passes it to the script.
pub(crate) struct NotingProvider {
    pub(crate) script: ScriptedProvider,
    pub(crate) requests: Requests,
}

#[async_trait]
impl Provider for NotingProvider {
    fn name(&self) -> &str {
        self.script.name()
    }

    fn model(&self) -> &str {
        self.script.model()
    }

    fn check_settings(&self, settings: &ModelSettings) -> Result<(), UnsupportedSetting> {
        self.script.check_settings(settings)
    }

    fn reports_all_usage(&self) -> bool {
        self.script.reports_all_usage()
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let sent = SentRequest {
            messages: request.messages.messages().to_vec(),
            tools: request.tools.iter().map(|tool| Arc::clone(&tool.name)).collect(),
        };
        {
            let mut asked = self.requests.lock();
            asked.requests.push(sent);
            asked.count += 1;
        }
        let result = self.script.complete(request).await;
        if let Err(error) = &result
            && sources(error).any(|cause| cause.is::<ScriptExhausted>())
        {
            self.requests.lock().is_exhausted = true;
        }
        result
    }
}
