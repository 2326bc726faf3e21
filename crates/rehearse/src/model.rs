//! The scripted model, and a note of everything it was sent.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use backstop_provider::{
    ModelRequest, ModelResponse, ModelSettings, Provider, ProviderError, ScriptedProvider,
    UnsupportedSetting,
};
use layer0::message::Message;
use serde::Serialize;

/// What the model was sent in one attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SentRequest {
    messages: Vec<Arc<Message>>,
    tools: Vec<Arc<str>>,
}

/// The requests of a rehearsal, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<Vec<SentRequest>>>);

impl Requests {
    pub(crate) fn take(&self) -> Vec<SentRequest> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Passes on to the script and notes what was asked.
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

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let sent = SentRequest {
            messages: request.messages.messages().to_vec(),
            tools: request.tools.iter().map(|tool| Arc::clone(&tool.name)).collect(),
        };
        self.requests.0.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
        self.script.complete(request).await
    }
}
