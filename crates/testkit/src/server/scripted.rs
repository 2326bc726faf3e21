use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop_provider::ScriptedAnswer;
use serde_json::Value;

use crate::server::{Loopback, Reply, Request};
use crate::wire::{anthropic, bedrock, gemini, ollama, openai, responses};

/// A real endpoint on loopback that answers from a script, one entry per request, in order.
///
/// It streams if the request asks for that, fills `${error_id.N}` and `${result_id.N}` from the request's tool results,
/// and encodes each scripted error like a provider.
#[derive(Debug)]
pub struct ScriptedEndpoint {
    server: Loopback,
    prefix: &'static str,
}

impl ScriptedEndpoint {
    /// Serves the script as OpenAI Chat Completions.
    #[must_use]
    pub fn openai(answers: impl Into<Arc<[ScriptedAnswer]>>) -> Self {
        Self::serving("/v1", "/v1/chat/completions", answers.into(), openai::reply)
    }

    /// Serves the script as OpenAI Responses.
    #[must_use]
    pub fn openai_responses(answers: impl Into<Arc<[ScriptedAnswer]>>) -> Self {
        Self::serving("/v1", "/v1/responses", answers.into(), responses::reply)
    }

    /// Serves the script as Anthropic Messages.
    #[must_use]
    pub fn anthropic(answers: impl Into<Arc<[ScriptedAnswer]>>) -> Self {
        Self::serving("", "/v1/messages", answers.into(), anthropic::reply)
    }

    /// Serves the script as Amazon Bedrock Converse, for every model.
    #[must_use]
    pub fn bedrock(answers: impl Into<Arc<[ScriptedAnswer]>>) -> Self {
        let serves = |path: &str| bedrock::is_streamed(path).is_some();
        let what = "/model/…/converse[-stream]";
        Self::routing("", what, answers.into(), serves, |answer, request| {
            let is_streamed = bedrock::is_streamed(&request.path) == Some(true);
            bedrock::reply(answer, &request.body, is_streamed)
        })
    }

    /// Serves the script as Gemini `generateContent` and `streamGenerateContent`.
    #[must_use]
    pub fn gemini(answers: impl Into<Arc<[ScriptedAnswer]>>) -> Self {
        let serves = |path: &str| gemini::is_streamed(path).is_some();
        let what = "/v1beta/models/…:generateContent";
        Self::routing("/v1beta", what, answers.into(), serves, |answer, request| {
            let is_streamed = gemini::is_streamed(&request.path) == Some(true);
            gemini::reply(answer, &request.body, is_streamed)
        })
    }

    /// Serves the script as Ollama chat.
    #[must_use]
    pub fn ollama(answers: impl Into<Arc<[ScriptedAnswer]>>) -> Self {
        Self::serving("", "/api/chat", answers.into(), ollama::reply)
    }

    /// Returns the base URL to give to the adapter.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("{}{}", self.server.url(), self.prefix)
    }

    /// Returns the requests so far, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.server.requests()
    }

    /// Returns the number of requests.
    #[must_use]
    pub fn count(&self) -> usize {
        self.server.count()
    }

    fn serving(
        prefix: &'static str,
        path: &'static str,
        answers: Arc<[ScriptedAnswer]>,
        reply: fn(&ScriptedAnswer, &Value) -> Reply,
    ) -> Self {
        let serves = move |asked: &str| asked == path;
        Self::routing(prefix, path, answers, serves, move |answer, request| {
            reply(answer, &request.body)
        })
    }

    /// Serves the paths that `serves` accepts; `path` describes them in refusals.
    fn routing(
        prefix: &'static str,
        path: &'static str,
        answers: Arc<[ScriptedAnswer]>,
        serves: impl Fn(&str) -> bool + Send + Sync + 'static,
        reply: impl Fn(&ScriptedAnswer, &Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let next = AtomicUsize::new(0);
        let server = Loopback::serving(move |request| {
            if request.method != "POST" || !serves(&request.path) {
                let why = format!("only POST {path} is served");
                return Reply { status: 404, ..Reply::refusal(&why) };
            }
            let index = next.fetch_add(1, Ordering::Relaxed);
            match answers.get(index) {
                Some(answer) => reply(answer, request),
                None => Reply::refusal(&format!(
                    "script exhausted: it has {} answers and this is request {}",
                    answers.len(),
                    index + 1
                )),
            }
        });
        Self { server, prefix }
    }
}
