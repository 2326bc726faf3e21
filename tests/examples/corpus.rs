//! Reads recorded answers with the provider adapters, and sends them back. `tests/corpus` feeds it a line of JSON
//! for each exchange and compares the line it writes with what the vendors' own libraries say.
//!
//! Each answer is served by a server on loopback, so that its status, headers and bytes take the way of a real one.
//! A second request holds the answer as history, with a result for each call, and its body is written as it was sent.
//! Text of models and arguments are written as strings: no JSON library of this process interprets them.

#![expect(
    clippy::disallowed_methods,
    reason = "it speaks with the scripts by its standard streams"
)]

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};

use backstop::anthropic::Anthropic;
use backstop::bedrock::Bedrock;
use backstop::gemini::Gemini;
use backstop::layer0::ToolSpec;
use backstop::ollama::Ollama;
use backstop::openai::{ChatDialect, OpenAi, OpenAiResponses};
use backstop::provider::{ModelRequest, ModelResponse, Provider, ProviderError};
use backstop::{Failure, Message, ToolCall, Transcript};
use backstop_testkit::{Loopback, Reply, Request};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// A recorded exchange.
struct Exchange {
    dialect: String,
    /// The host it was recorded at, which tells how Chat Completions are spoken.
    host: String,
    model: String,
    is_streamed: bool,
    reply: Reply,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start();
    let mut providers = BTreeMap::<_, Box<dyn Provider>>::new();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let exchange = Exchange::read(&line?)?;
        let known = [&exchange.dialect, &exchange.host, &exchange.model].map(String::clone);
        let provider: &dyn Provider = match providers.entry(known) {
            Entry::Occupied(known) => &**known.into_mut(),
            Entry::Vacant(new) => &**new.insert(provider(&exchange, &server.loopback.url())?),
        };
        writeln!(out, "{}", compare(provider, exchange, &server).await)?;
    }
    Ok(())
}

async fn compare(provider: &dyn Provider, exchange: Exchange, server: &Server) -> Value {
    let is_streamed = exchange.is_streamed;
    server.set_reply(exchange.reply);
    let answer = match ask(provider, ModelRequest::new(question()), is_streamed).await {
        Ok(answer) => answer,
        Err(error) => return json!({ "failure": failure(&error) }),
    };
    // The server has no answer to what follows, but keeps it.
    let refused = ask(provider, send_back(&answer), is_streamed).await.err();
    let body = server.take_body();
    let unsent = refused.filter(|_| body.is_none()).map(|error| failure(&error));
    let body = body.map(|body| BASE64_STANDARD.encode(body));
    json!({ "answer": shown(&answer), "sent": body, "unsent": unsent })
}

impl Exchange {
    fn read(line: &str) -> Result<Self, Box<dyn Error>> {
        let line: Value = serde_json::from_str(line)?;
        let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let status = u16::try_from(line["status"].as_u64().ok_or("no status")?)?;
        let body = BASE64_STANDARD.decode(word("body"))?;
        let mut reply = Reply::new(status, "", body);
        reply.headers.clear();
        for (name, value) in line["headers"].as_object().ok_or("no headers")? {
            reply = reply.header(name, value.as_str().unwrap_or_default());
        }
        let is_streamed = line["is_streamed"].as_bool().unwrap_or_default();
        let [dialect, host, model] = ["dialect", "host", "model"].map(word);
        Ok(Self { dialect, host, model, is_streamed, reply })
    }
}

/// Gives the answer that was set once, and keeps the body of the request that follows.
struct Server {
    loopback: Loopback,
    reply: Arc<Mutex<Option<Reply>>>,
    body: Arc<Mutex<Option<Vec<u8>>>>,
}

impl Server {
    fn start() -> Self {
        let (reply, body) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        let (next, last) = (Arc::clone(&reply), Arc::clone(&body));
        let loopback = Loopback::serving(move |request: &Request| {
            lock(&next).take().unwrap_or_else(|| {
                *lock(&last) = Some(request.bytes.clone());
                Reply::refusal("the body is kept")
            })
        });
        Self { loopback, reply, body }
    }

    fn set_reply(&self, reply: Reply) {
        *lock(&self.reply) = Some(reply);
    }

    fn take_body(&self) -> Option<Vec<u8>> {
        lock(&self.body).take()
    }
}

fn provider(exchange: &Exchange, url: &str) -> Result<Box<dyn Provider>, Box<dyn Error>> {
    let model = exchange.model.as_str();
    Ok(match exchange.dialect.as_str() {
        "anthropic" => Box::new(Anthropic::new(model).base_url(url).build()?),
        "bedrock" => Box::new(Bedrock::new(model).base_url(url).build()?),
        "chat" => {
            let spoken = ChatDialect::from_host(&exchange.host);
            Box::new(OpenAi::new(model).base_url(url).with(|it| it.dialect(spoken)).build()?)
        }
        "gemini" => Box::new(Gemini::new(model).base_url(url).build()?),
        "ollama" => Box::new(Ollama::new(model).base_url(url).build()?),
        "responses" => Box::new(OpenAiResponses::new(model).base_url(url).build()?),
        other => return Err(format!("no adapter speaks `{other}`").into()),
    })
}

fn question() -> Transcript {
    [Message::user("Go on.")].into_iter().collect()
}

async fn ask(
    provider: &dyn Provider,
    request: ModelRequest,
    is_streamed: bool,
) -> Result<ModelResponse, ProviderError> {
    if is_streamed { provider.stream(&request).await } else { provider.complete(&request).await }
}

/// Makes the request that follows an answer, with a result for each of its calls. As in a run, a call without an id
/// is given one.
fn send_back(answer: &ModelResponse) -> ModelRequest {
    let calls: Arc<[ToolCall]> = (1..)
        .zip(answer.tool_calls.iter())
        .map(|(place, call)| match call.id.as_str() {
            "" => {
                ToolCall::new(format!("~{place}"), Arc::clone(&call.name), call.arguments.clone())
            }
            _ => call.clone(),
        })
        .collect();
    let mut messages = question();
    messages.push(Message::Assistant {
        content: Arc::clone(&answer.text),
        tool_calls: Arc::clone(&calls),
        provider_state: answer.provider_state.clone(),
    });
    for call in calls.iter() {
        messages.push(Message::tool(call.id.clone(), format!("result of {}", call.id), false));
    }
    if calls.is_empty() {
        messages.push(Message::user("Go on."));
    }
    let names: BTreeSet<&str> = calls.iter().map(|call| &*call.name).collect();
    let tool = |name| ToolSpec::new(name, "A tool.", json!({ "type": "object", "properties": {} }));
    ModelRequest::new(messages).tools(names.into_iter().map(tool).collect::<Vec<_>>())
}

fn shown(answer: &ModelResponse) -> Value {
    let calls = answer.tool_calls.iter().map(|call| {
        json!({ "id": call.id.as_str(), "name": call.name, "arguments": call.arguments.get() })
    });
    let usage = answer.usage.unwrap_or_default();
    json!({
        "text": answer.text,
        "thinking": answer.thinking.as_deref().unwrap_or_default(),
        "calls": calls.collect::<Vec<_>>(),
        "stop": answer.stop_reason.as_str(),
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cached": usage.cached_tokens,
        "written": usage.cache_write_tokens,
    })
}

fn failure(error: &ProviderError) -> Value {
    json!({
        "code": error.code(),
        "is_retried": error.is_retryable(),
        "message": error.to_string(),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
