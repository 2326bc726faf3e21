//! What memory connections take in the process of their client, as the kernel counts it.
//!
//! Each measurement is a process of its own: what is freed stays with a process, and would be found by the next.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use backstop_mcp::McpServer;
use backstop_testkit::measure::{Goal, Row, Spread};
use rmcp::transport::StreamableHttpClientTransport;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::server;

/// How many connections are held at once.
const CONNECTIONS: u32 = 100;
/// Stands for a server over stdio.
const PROGRAM: &str = "program";

/// Compares connections of ours with those of bare `rmcp`, in so many rounds.
pub(crate) fn rows(rounds: usize) -> [Row; 2] {
    let mut http = Command::new(this()).arg("serve-http").stdout(Stdio::piped()).spawn();
    let http = http.as_mut().expect("this program starts");
    let url = first_line(http);
    let rows = [("stdio", PROGRAM), ("HTTP", &url)].map(|(way, server)| {
        let ratios: Vec<f64> = (0..rounds)
            .map(|_| {
                let (bare, ours) = (measured("bare", server), measured("ours", server));
                println!("a connection over {way}: {ours:.0} KiB, a bare one {bare:.0} KiB");
                ours / bare
            })
            .collect();
        Row::new(format!("memory of a connection over {way}"), Spread::of(ratios), Goal::None)
    });
    drop(http.kill());
    drop(http.wait());
    rows
}

/// Serves over HTTP until it is killed, and says where.
pub(crate) async fn serve() -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    println!("http://{}/mcp", listener.local_addr().expect("it is bound"));
    server().serve_http(listener, None, CancellationToken::new()).await.is_ok()
}

/// Returns the KiB of a connection beyond the first, which brings along what all share.
pub(crate) async fn held(client: &str, server: &str) -> f64 {
    let mut bare = Vec::new();
    let mut ours = Vec::new();
    let mut before = 0;
    for held in 0..=CONNECTIONS {
        match client {
            "bare" => bare.push(connect_bare(server).await),
            _ => ours.push(connect(server).await),
        }
        if held == 0 {
            before = resident_kib();
        }
    }
    let more = resident_kib().saturating_sub(before);
    drop((bare, ours));
    f64::from(u32::try_from(more).unwrap_or(u32::MAX)) / f64::from(CONNECTIONS)
}

type Bare = (rmcp::service::RunningService<rmcp::RoleClient, ()>, Option<tokio::process::Child>);

async fn connect_bare(server: &str) -> Bare {
    if server != PROGRAM {
        let transport = StreamableHttpClientTransport::from_uri(server);
        return (rmcp::serve_client((), transport).await.expect("the server answers"), None);
    }
    let mut child = tokio::process::Command::new(this())
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts");
    let pipes = child.stdout.take().zip(child.stdin.take()).expect("both are piped");
    (rmcp::serve_client((), pipes).await.expect("the server answers"), Some(child))
}

async fn connect(server: &str) -> std::sync::Arc<backstop_mcp::McpClient> {
    let server = match server {
        PROGRAM => McpServer::command("bench", [this().display().to_string(), "serve".to_owned()]),
        url => McpServer::url("bench", url),
    };
    server.connect().await.expect("the server answers")
}

fn measured(client: &str, server: &str) -> f64 {
    let output = Command::new(this()).args(["hold", client, server]).output();
    let output = output.expect("this program starts").stdout;
    String::from_utf8_lossy(&output).trim().parse().expect("it says how much")
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let output = child.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut line).expect("it says where it listens");
    line.trim().to_owned()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kib.expect("the kernel counts it")
}

fn this() -> PathBuf {
    std::env::current_exe().expect("this program has a file")
}
