//! A process that loses its lock while its lease lasts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_event_log::read_events;
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, RunRequest};
use backstop_store_postgres::Database;
use backstop_testkit::PostgresServer;
use backstop_tool::{Arguments, Probe, Tool, ToolContext, ToolError};
use layer0::event::EventKind;
use layer0::message::Message;
use layer0::{JsonText, ToolSpec};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::support::{open_with_lease, until};

const LEASE: Duration = Duration::from_secs(15);
const RUN: &str = "run_1";

/// Starts a way to the server that can refuse new connections, as a firewall or a full server does.
async fn relay(to: String, refuses: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut inner, _)) = listener.accept().await {
            if refuses.load(Ordering::SeqCst) {
                continue;
            }
            let to = to.clone();
            tokio::spawn(async move {
                let mut outer = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut inner, &mut outer).await;
            });
        }
    });
    address
}

/// Two processes that share a database; the first one's new connections can be refused.
struct Pair {
    server: PostgresServer,
    door: Door,
    first: Database,
    second: Database,
}

/// The way of the first process to the server, which can be closed.
enum Door {
    /// New connections are closed before the server is asked.
    Relay(Arc<AtomicBool>),
    /// The server itself has no place for more connections of this role.
    Full(&'static str),
}

impl Pair {
    async fn start() -> Option<Self> {
        let server = PostgresServer::start()?;
        let url = server.database().await;
        let refuses = Arc::<AtomicBool>::default();
        let host = url.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned();
        let near = relay(host.clone(), Arc::clone(&refuses)).await;
        let near = url.replace(&host, &near);
        Some(Self::open(server, Door::Relay(refuses), &near, &url).await)
    }

    /// As [`Pair::start`], with a server that is full when the first process wants to connect again.
    async fn start_at_full_server() -> Option<Self> {
        let server = PostgresServer::start()?;
        let url = server.database().await;
        let owner = url.split("://").nth(1).unwrap().split('@').next().unwrap().to_owned();
        server.execute(&format!("CREATE ROLE crowded LOGIN IN ROLE {owner}")).await;
        let crowded = url.replace(&format!("{owner}@"), "crowded@");
        // The schema is made by its owner.
        open_with_lease(&url, LEASE).await.close().await;
        Some(Self::open(server, Door::Full("crowded"), &crowded, &url).await)
    }

    async fn open(server: PostgresServer, door: Door, first: &str, second: &str) -> Self {
        let (first, second) =
            (open_with_lease(first, LEASE).await, open_with_lease(second, LEASE).await);
        Self { server, door, first, second }
    }

    /// Sets whether new connections of the first process are refused.
    async fn refuse(&self, refuses: bool) {
        match &self.door {
            Door::Relay(refusing) => refusing.store(refuses, Ordering::SeqCst),
            Door::Full(role) => {
                let most = if refuses { 0 } else { -1 };
                self.server.execute(&format!("ALTER ROLE {role} CONNECTION LIMIT {most}")).await;
            }
        }
    }

    /// Ends the connection with the lock of the first process, and lets it make no other.
    async fn cut_off(&self) {
        self.refuse(true).await;
        let lock = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid) \
            WHERE locktype = 'advisory'";
        self.server.execute(lock).await;
    }

    async fn has_recorded(&self, is_it: impl Fn(&EventKind) -> bool) {
        let log = self.second.log();
        until(async || {
            let (_, events) = read_events(&log, &RUN.into()).await.ok()?;
            events.iter().any(|event| is_it(&event.kind)).then_some(())
        })
        .await;
    }
}

/// A tool that pays, and records the payer.
struct Payment {
    spec: ToolSpec,
    office: &'static str,
    takes: Duration,
    bank: Bank,
}

/// Begun and ended payments, in order.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<Vec<(&'static str, &'static str)>>>);

impl Bank {
    fn note(&self, office: &'static str, what: &'static str) {
        self.0.lock().unwrap().push((office, what));
    }

    fn notes(&self) -> Vec<(&'static str, &'static str)> {
        self.0.lock().unwrap().clone()
    }
}

/// A payment under way.
struct UnderWay<'a>(&'a Payment);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.bank.note(self.0.office, "is over");
    }
}

#[async_trait]
impl Tool for Payment {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        self.bank.note(self.office, "begins");
        let _under_way = UnderWay(self);
        SystemClock.sleep(self.takes).await;
        Ok(JsonText::from(&json!("paid")))
    }

    async fn probe(&self, _: &Arguments, _: &ToolContext) -> Result<Probe, ToolError> {
        let was_paid = self.bank.notes().iter().any(|(_, what)| *what == "begins");
        Ok(if was_paid { Probe::happened_with(json!("paid")) } else { Probe::DidNot })
    }
}

/// Returns an agent that pays once, and again if the tool reports that nothing happened.
fn payer(
    database: &Database,
    office: &'static str,
    bank: &Bank,
    (thinks, takes): (u64, Duration),
    spec: ToolSpec,
) -> Agent {
    let model = ScriptedProvider::from_fn(move |request| {
        match request.messages.messages().last().map(|it| &**it) {
            Some(Message::Tool { content, .. }) if !content.contains("may be called again") => {
                ScriptedAnswer::saying("done")
            }
            _ => ScriptedAnswer::calling("pay", json!({})).delay_ms(thinks),
        }
    });
    let tool = Payment { spec, office, takes, bank: bank.clone() };
    Agent::builder(model).name("payer").tool(tool).log(database.log()).build().unwrap()
}

fn spec() -> ToolSpec {
    ToolSpec::new("pay", "Pays.", json!({"type": "object"})).probe()
}

/// Spec: J2. A step that was recorded waits for the lock, and another process takes the run over meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn held_back_step_never_follows_a_takeover() {
    let Some(pair) = Pair::start().await else { return };
    let bank = Bank::default();
    let first = payer(&pair.first, "first", &bank, (1_000, Duration::ZERO), spec());
    let second = payer(&pair.second, "second", &bank, (0, Duration::ZERO), spec());
    let running =
        tokio::spawn(async move { first.run(RunRequest::new("pay").run(RUN.into())).await });
    pair.has_recorded(|kind| matches!(kind, EventKind::RunStarted(_))).await;
    pair.cut_off().await;
    pair.has_recorded(|kind| matches!(kind, EventKind::ToolRequested(_))).await;
    second.resume(RUN).await.unwrap();
    pair.refuse(false).await;
    assert!(running.await.unwrap().is_err(), "the run is another's");
    let begun = bank.notes().into_iter().filter(|(_, what)| *what == "begins");
    assert_eq!(begun.collect::<Vec<_>>(), [("second", "begins")]);
}

/// Spec: J2. A tool at work is stopped before the other process begins it again.
#[tokio::test(flavor = "multi_thread")]
async fn tool_stops_before_another_process_begins_it() {
    let Some(pair) = Pair::start().await else { return };
    stops_before_another_begins(pair).await;
}

/// Spec: J2. The server has no place left when the process wants to hold its lock again.
#[tokio::test(flavor = "multi_thread")]
async fn full_server_keeps_no_run_with_its_owner() {
    let Some(pair) = Pair::start_at_full_server().await else { return };
    stops_before_another_begins(pair).await;
}

async fn stops_before_another_begins(pair: Pair) {
    let bank = Bank::default();
    let long = (0, Duration::from_secs(60));
    let idempotent = || ToolSpec::new("pay", "Pays.", json!({"type": "object"})).idempotent();
    let first = payer(&pair.first, "first", &bank, long, idempotent());
    let second = payer(&pair.second, "second", &bank, (0, Duration::ZERO), idempotent());
    let running =
        tokio::spawn(async move { first.run(RunRequest::new("pay").run(RUN.into())).await });
    until(async || (!bank.notes().is_empty()).then_some(())).await;
    pair.cut_off().await;
    second.resume(RUN).await.unwrap();
    assert!(running.await.unwrap().is_err(), "the run is another's");
    let expected =
        [("first", "begins"), ("first", "is over"), ("second", "begins"), ("second", "is over")];
    assert_eq!(bank.notes(), expected);
}
