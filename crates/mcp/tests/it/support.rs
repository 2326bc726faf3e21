//! Clients of faulty servers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{BoxFuture, Clock, SystemClock};
use backstop_mcp::{McpClient, McpServer};
use backstop_redact::Redactor;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError, ToolSource};
use layer0::id::{CallId, RunId, SessionId};
use layer0::{JsonText, Timestamp};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::server::Script;
use crate::server::http::HttpServer;

/// Time limit of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Creates a test from a future; it fails if the future does not end.
pub(crate) fn trial<F: Future<Output = ()> + Send + 'static>(
    name: impl Into<String>,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            tokio::select! {
                () = test() => Ok(()),
                () = SystemClock.sleep(PATIENCE) => Err("it hangs".into()),
            }
        })
    })
}

/// Creates tests from functions; with `over`, one for each way to a server.
macro_rules! checks {
    (over $ways:path: $($name:ident),+ $(,)?) => {{
        let mut trials = Vec::new();
        for way in $ways {
            $(
                let name = format!("{} ({})", stringify!($name), way.name());
                trials.push($crate::support::trial(name, move || $name(way)));
            )+
        }
        trials
    }};
    ($($name:ident),+ $(,)?) => {
        vec![$($crate::support::trial(stringify!($name), $name)),+]
    };
}
pub(crate) use checks;

/// A clock whose waits take a fraction of their time.
#[derive(Debug)]
pub(crate) struct Hasty(pub(crate) u32);

impl Clock for Hasty {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic() * self.0
    }

    fn sleep(&self, wait: Duration) -> BoxFuture {
        SystemClock.sleep(wait / self.0)
    }
}

/// A server with its recorded requests.
pub(crate) struct Faulty {
    folder: tempfile::TempDir,
    http: Option<HttpServer>,
}

/// The way to a server, and whether its messages are written in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Stdio { is_cut: bool },
    Http { is_stream: bool, is_cut: bool },
}

impl Way {
    pub(crate) const ALL: [Self; 6] = [
        Self::Stdio { is_cut: false },
        Self::Stdio { is_cut: true },
        Self::Http { is_stream: false, is_cut: false },
        Self::Http { is_stream: false, is_cut: true },
        Self::Http { is_stream: true, is_cut: false },
        Self::Http { is_stream: true, is_cut: true },
    ];

    /// The ways with whole messages.
    pub(crate) const WHOLE: [Self; 3] = [Self::ALL[0], Self::ALL[2], Self::ALL[4]];

    /// The ways with whole messages and without event streams.
    pub(crate) const JSON: [Self; 2] = [Self::ALL[0], Self::ALL[2]];

    /// The ways over HTTP with whole messages.
    pub(crate) const HTTP: [Self; 2] = [Self::ALL[2], Self::ALL[4]];

    pub(crate) fn name(self) -> String {
        let (transport, is_cut) = match self {
            Self::Stdio { is_cut } => ("stdio", is_cut),
            Self::Http { is_stream: false, is_cut } => ("http json", is_cut),
            Self::Http { is_stream: true, is_cut } => ("http sse", is_cut),
        };
        format!("{transport}, {}", if is_cut { "cut" } else { "whole" })
    }
}

impl Faulty {
    /// Creates a server with this script.
    pub(crate) fn new(way: Way, mut script: Script) -> (Self, McpServer) {
        let folder = tempfile::tempdir().unwrap();
        let needs_login = script.needs_login;
        script.folder = folder.path().to_str().unwrap().to_owned();
        let (server, http) = match way {
            Way::Stdio { is_cut } => {
                (script.is_cut, script.is_program) = (is_cut, true);
                let this = std::env::current_exe().unwrap();
                let file = folder.path().join("script");
                std::fs::write(&file, serde_json::to_string(&script).unwrap()).unwrap();
                let variables = BTreeMap::from([
                    ("SCRIPT".to_owned(), file.to_str().unwrap().to_owned()),
                    ("API_KEY".to_owned(), "hunter2-hunter2".to_owned()),
                ]);
                let mut variables = variables;
                if !script.before.is_empty() {
                    variables.insert("PATH".to_owned(), std::env::var("PATH").unwrap());
                }
                let this = this.to_str().unwrap().to_owned();
                let command = match script.before.is_empty() {
                    true => vec![this, "serve".to_owned()],
                    false => {
                        let shell = format!("{}\nexec \"$0\" serve", script.before);
                        vec!["sh".to_owned(), "-c".to_owned(), shell, this]
                    }
                };
                let server = McpServer::command("faulty", command).folder(folder.path());
                (server.variables(variables), None)
            }
            Way::Http { is_stream, is_cut } => {
                (script.is_stream, script.is_cut) = (is_stream, is_cut);
                let http = HttpServer::start(script);
                let server = McpServer::url("faulty", &http.url);
                let server = match needs_login {
                    true => server,
                    false => server.header("authorization", "Bearer s3cret-s3cret"),
                };
                (server, Some(http))
            }
        };
        let server = server
            .idempotent(["repeat"])
            .read_only(["look"])
            .timeout(Duration::from_secs(30))
            .redactor(Redactor::new());
        (Self { folder, http }, server)
    }

    fn lines(&self, what: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join(what)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the received calls.
    pub(crate) fn calls(&self) -> Vec<Value> {
        match &self.http {
            Some(http) => http.seen.lock().unwrap().calls.clone(),
            None => {
                let calls = self.lines("calls");
                calls.iter().map(|call| serde_json::from_str(call).unwrap()).collect()
            }
        }
    }

    /// Returns all received messages, as written.
    pub(crate) fn written(&self) -> Vec<String> {
        match &self.http {
            Some(http) => http.seen.lock().unwrap().written.clone(),
            None => self.lines("written"),
        }
    }

    /// Returns the last received call, as written.
    pub(crate) fn last_written(&self) -> String {
        self.written().into_iter().rfind(|message| message.contains("tools/call")).unwrap()
    }

    /// Returns the number of starts or sessions.
    pub(crate) fn starts(&self) -> usize {
        match &self.http {
            Some(http) => http.seen.lock().unwrap().starts,
            None => self.lines("starts").len(),
        }
    }

    /// Returns the folder of its records.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the ids of its processes.
    pub(crate) fn processes(&self) -> Vec<String> {
        self.lines("starts")
    }

    /// Returns the received messages that are no requests.
    pub(crate) fn said(&self) -> Vec<Value> {
        match &self.http {
            Some(http) => http.seen.lock().unwrap().said.clone(),
            None => {
                let said = self.lines("said");
                said.iter().map(|said| serde_json::from_str(said).unwrap()).collect()
            }
        }
    }

    /// Returns its environment variables, or the received headers.
    pub(crate) fn given(&self) -> Vec<String> {
        match &self.http {
            Some(http) => http.seen.lock().unwrap().headers.clone(),
            None => self.lines("variables"),
        }
    }

    pub(crate) fn http(&self) -> &HttpServer {
        self.http.as_ref().unwrap()
    }
}

pub(crate) fn tool(client: &McpClient, origin: &str) -> Arc<dyn Tool> {
    let tools = client.tools();
    let found = tools.into_iter().find(|tool| tool.spec().origin.as_deref() == Some(origin));
    found.unwrap_or_else(|| panic!("no tool `{origin}`"))
}

pub(crate) fn context() -> ToolContext {
    let call = CallId::new("call-1");
    ToolContext::new(RunId::new("run-1"), SessionId::new("session-1"), call, Timestamp::default())
}

pub(crate) async fn call(client: &McpClient, origin: &str) -> Result<JsonText, ToolError> {
    let arguments = Arguments::from(serde_json::json!({"n": 1}));
    tool(client, origin).call(&arguments, &context()).await
}

/// Waits until a condition holds.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        SystemClock.sleep(Duration::from_millis(5)).await;
    }
}
