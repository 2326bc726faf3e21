//! A server that uses HTTP/2 and refuses requests, which a client may take as permission to retry by itself.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use backstop_testkit::ClosedPort;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::bench::Bench;

/// A certificate for 127.0.0.1, with its key.
const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/loopback.pem");

/// A stream that is refused was not begun, and HTTP/2 lets a client send it again: reqwest does so
/// twice, unless it is told not to.
///
/// Spec: R9
#[test]
fn refused_request_is_sent_once_an_attempt() {
    for attempts in [1, 2] {
        let server = Refusing::start();
        let bench = Bench::new().with("SSL_CERT_FILE", CERTIFICATE);
        bench.write(
            "agent.toml",
            &format!(
                "[agent]\ninput = \"x\"\n[agent.retry]\nattempts = {attempts}\nbase_ms = 0\n[model]\n\
                 provider = \"openai\"\nmodel = \"m\"\nbase_url = \"{}\"\n",
                server.url
            ),
        );
        let ran = bench.run(&["run", "agent.toml"]).fails(1, "provider.transient");
        assert_eq!(server.asked.load(Ordering::SeqCst), attempts, "{}", ran.err);
    }
}

/// Spec: E7
#[test]
fn untrusted_server_has_a_hint() {
    let server = Refusing::start();
    let ran = ask(&Bench::new(), &server.url, &[]).fails(1, "provider.transient");
    assert!(ran.err.contains("SSL_CERT_FILE"), "{}", ran.err);
    assert!(ran.err.contains(&format!("base_url is `{}`", server.url)), "{}", ran.err);
}

/// Spec: E7, E10
#[test]
fn unreachable_server_has_a_hint() {
    let closed = ClosedPort::bind();
    let free = closed.address();
    let ran = ask(&Bench::new(), &format!("http://{free}/t0ken/v1"), &[]).fails(1, "");
    let said = format!(
        "error: provider.transient: gave up after 1 attempts: no connection to `{free}`: \
         Connection refused (os error 111)\n  hint: is it running? base_url is `http://{free}/…/v1`\n"
    );
    assert!(ran.err.contains(&said), "{}", ran.err);
    assert!(!ran.err.contains("t0ken"), "{}", ran.err);
    // The layers of the client between them are shown only on request.
    let told =
        ask(&Bench::new(), &format!("http://{free}/v1"), &["-v"]).fails(1, "tcp connect error");
    assert!(told.err.contains(&format!("no connection to `{free}`: error sending request: ")));
}

fn ask(bench: &Bench, base_url: &str, more: &[&str]) -> crate::bench::Ran {
    bench.write(
        "agent.toml",
        &format!(
            "[agent]\ninput = \"x\"\n[agent.retry]\nattempts = 1\n[model]\n\
             provider = \"openai\"\nmodel = \"m\"\nbase_url = \"{base_url}\"\n"
        ),
    );
    bench.run(&[&["run", "agent.toml"], more].concat())
}

struct Refusing {
    url: String,
    asked: Arc<AtomicUsize>,
}

impl Refusing {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}/v1", listener.local_addr().unwrap());
        let certificates = CertificateDer::pem_file_iter(CERTIFICATE).unwrap();
        let certificates = certificates.collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(CERTIFICATE).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = config.with_single_cert(certificates, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (config, asked) = (Arc::new(config), Arc::<AtomicUsize>::default());
        let counted = Arc::clone(&asked);
        // The thread ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let (stream, asked) = (stream.unwrap(), Arc::clone(&counted));
                thread::spawn(move || refuse(StreamOwned::new(connection, stream), &asked));
            }
        });
        Self { url, asked }
    }
}

/// Refuses every stream until the client disconnects, <https://www.rfc-editor.org/rfc/rfc9113.html>.
fn refuse(
    mut stream: StreamOwned<ServerConnection, TcpStream>,
    asked: &AtomicUsize,
) -> io::Result<()> {
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    stream.read_exact(&mut [0; PREFACE.len()])?;
    stream.write_all(&frame(SETTINGS, [0; 4], &[]))?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [length @ .., kind, _flags, s0, s1, s2, s3] = head;
        let [l0, l1, l2] = length;
        let length = usize::from_be_bytes([0, 0, 0, 0, 0, l0, l1, l2]);
        stream.read_exact(&mut vec![0; length])?;
        if kind == HEADERS {
            asked.fetch_add(1, Ordering::SeqCst);
            stream.write_all(&frame(RST_STREAM, [s0, s1, s2, s3], &REFUSED_STREAM))?;
        }
        stream.flush()?;
    }
}

fn frame(kind: u8, stream: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, 0], &stream[..], payload].concat()
}
