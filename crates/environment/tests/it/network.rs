//! Ways out of a separate network.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstop_environment::{Network, Rules};
use layer0::{Effect, Failure};

use crate::support::{block_on, has_python, python, python_outside, walls};

/// The beginning of Python programs: a raw request to the proxy.
pub(crate) const ASK: &str = "
import os, socket, sys
host, port = os.environ['http_proxy'].removeprefix('http://').split(':')
def proxy():
    return socket.create_connection((host, int(port)), 10)
def ask(text, connection=None):
    connection = connection or proxy()
    connection.sendall(text.replace('\\n', '\\r\\n').encode())
    return connection
def answer(connection):
    read = b''
    while not read.endswith(b'\\n') and (more := connection.recv(65536)):
        read += more
    return read.decode()
def told(connection):
    text = answer(connection)
    print(text.split(' ')[1], text.strip().split('\\r\\n')[-1])
";

/// An HTTP server on the loopback that greets, and counts its connections.
struct Server {
    port: u16,
    came: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let came = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&came);
        // It ends with the process of the tests.
        drop(std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                drop(std::thread::spawn(move || {
                    let mut request = [0; 4096];
                    while let Ok(read @ 1..) = stream.read(&mut request) {
                        let head = String::from_utf8_lossy(&request[..read]).into_owned();
                        let line = head.lines().next().unwrap_or_default().to_owned();
                        let body = format!("hello {line}\n");
                        let head =
                            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                        let _ = stream.write_all((head + &body).as_bytes());
                    }
                }));
            }
        }));
        Self { port, came }
    }

    fn came(&self) -> usize {
        self.came.load(Ordering::SeqCst)
    }
}

fn hosts<const N: usize>(hosts: [&str; N]) -> Rules {
    Rules::new().network(Network::Hosts(hosts.map(str::to_owned).to_vec()))
}

/// Spec: N2
pub(crate) fn allowed_host_is_reached() {
    if !has_python() {
        return;
    }
    let server = Server::start();
    block_on(async {
        let walls = walls(hosts(["localhost"]).private().files());
        let script = format!(
            "import urllib.request; print(urllib.request.urlopen('http://localhost:{}/a?b').read().decode())",
            server.port
        );
        let done = python(&walls, &script).await;
        assert_eq!(done.out, "hello GET /a?b HTTP/1.1\n\n", "{done:?}");
        assert!(done.broken.is_empty());
    });
}

/// Spec: N3
pub(crate) fn denied_host_is_named() {
    if !has_python() {
        return;
    }
    block_on(async {
        let walls = walls(hosts(["api.example.com"]));
        let script = format!(
            "{ASK}
told(ask('GET http://example.org/ HTTP/1.1\\nHost: example.org\\n\\n'))
told(ask('CONNECT example.org:443 HTTP/1.1\\nHost: example.org:443\\n\\n'))
told(ask('CONNECT api.example.com.evil.org:443 HTTP/1.1\\n\\n'))
"
        );
        let done = python(&walls, &format!("{script}sys.exit(1)")).await;
        let [first, second] = ["example.org", "api.example.com.evil.org"]
            .map(|host| format!("host {host} is not among api.example.com"));
        assert_eq!(
            done.out,
            format!(
                "403 env.network_denied: {first}\n403 env.network_denied: {first}\n403 env.network_denied: {second}\n"
            ),
            "{done:?}"
        );
        // Each host once, with the words that the program has read.
        assert_eq!(done.reasons(), [first.clone(), second.clone()]);
        let error = done.explained.unwrap();
        // Its earlier effects are unknown.
        assert_eq!((error.code(), error.effect()), ("env.network_denied", Effect::Unknown));
        assert_eq!(error.what(), second, "the last one, where the program says nothing");
        let done = python(&walls, &format!("{script}sys.exit('example.org is gone')")).await;
        assert_eq!(done.explained.unwrap().what(), first);
        let done = python(&walls, &format!("{script}open('/etc/shadow')")).await;
        assert_eq!(done.explained.unwrap().what(), second, "files are not walled");
    });
}

/// Spec: N3
pub(crate) fn tunnel_to_allowed_host_is_reached() {
    if !has_python() {
        return;
    }
    let server = Server::start();
    block_on(async {
        let walls = walls(hosts(["localhost"]).private());
        let script = format!(
            "{ASK}
c = ask('CONNECT localhost:{0} HTTP/1.1\\nHost: localhost:{0}\\n\\n')
assert c.recv(4096).startswith(b'HTTP/1.1 200')
print(answer(ask('GET /in HTTP/1.1\\n\\n', c)).split('\\r\\n')[-1], end='')",
            server.port
        );
        let done = python(&walls, &script).await;
        assert_eq!(done.out, "hello GET /in HTTP/1.1\n", "{done:?}");
    });
}

/// Spec: N3
pub(crate) fn tunnel_with_another_host_is_denied() {
    if !has_python() {
        return;
    }
    let server = Server::start();
    block_on(async {
        let walls = walls(hosts(["localhost"]).private());
        let port = server.port;
        let script = format!(
            "{ASK}
told(ask('CONNECT localhost:{port} HTTP/1.1\\nHost: example.org:443\\n\\n'))
told(ask('GET http://localhost:{port}/ HTTP/1.1\\nHost: example.org\\n\\n'))"
        );
        let done = python(&walls, &script).await;
        let denied = |other: &str| format!("host localhost was asked for as host {other}");
        let denied = [denied("example.org:443"), denied("example.org")];
        assert_eq!(
            done.out,
            format!(
                "403 env.network_denied: {}\n403 env.network_denied: {}\n",
                denied[0], denied[1]
            ),
            "{done:?}"
        );
        assert_eq!(done.reasons(), denied);
        assert_eq!(server.came(), 0);
    });
}

/// Spec: N3
pub(crate) fn tunnel_to_an_address_is_denied() {
    if !has_python() {
        return;
    }
    let server = Server::start();
    block_on(async {
        let port = server.port;
        let script = format!(
            "{ASK}
for target in ['127.0.0.1', '[::1]', '[::ffff:127.0.0.1]', '2130706433', '0x7f.1', '169.254.169.254']:
    told(ask('CONNECT %s:{port} HTTP/1.1\\n\\n' % target))"
        );
        let done = python(&walls(hosts(["localhost"]).private()), &script).await;
        assert_eq!(done.out.lines().count(), 6, "{done:?}");
        assert!(
            done.out.lines().all(|line| line.starts_with("403 env.network_denied: host ")),
            "{done:?}"
        );
        assert_eq!((done.broken.len(), server.came()), (6, 0), "{done:?}");
        // A listed address is granted.
        let listed = walls(hosts(["127.0.0.1"]));
        let script = format!(
            "{ASK}\nprint(answer(ask('GET http://127.0.0.1:{port}/ HTTP/1.1\\n\\n'))[:15])"
        );
        assert_eq!(python(&listed, &script).await.out, "HTTP/1.1 200 OK\n");
    });
}

/// Spec: N2
pub(crate) fn names_do_not_lead_to_private_addresses() {
    if !has_python() {
        return;
    }
    let server = Server::start();
    block_on(async {
        let script =
            format!("{ASK}\ntold(ask('CONNECT localhost:{} HTTP/1.1\\n\\n'))", server.port);
        let done = python(&walls(hosts(["localhost"])), &script).await;
        assert!(
            done.out.starts_with("403 env.network_denied: host localhost leads to "),
            "{done:?}"
        );
        assert!(done.out.ends_with(", which is private\n"), "{done:?}");
        assert_eq!((done.broken.len(), server.came()), (1, 0));
    });
}

/// Spec: N2. Each request of a connection is looked at, also one behind another's body.
pub(crate) fn kept_connection_reaches_no_other_host() {
    if !has_python() {
        return;
    }
    let server = Server::start();
    block_on(async {
        let walls = walls(hosts(["localhost"]).private());
        let port = server.port;
        let script = format!(
            "{ASK}
first = 'POST http://localhost:{port}/1 HTTP/1.1\\nContent-Length: 2\\n\\nab'
second = 'GET http://example.org/2 HTTP/1.1\\n\\n'
c = ask(first + second)
text = answer(c)
while 'example.org' not in text and (more := c.recv(4096)):
    text += more.decode()
import re
print(re.findall('HTTP/1.1 ([0-9]+)', text))"
        );
        let done = python(&walls, &script).await;
        assert_eq!(done.out, "['200', '403']\n", "{done:?}");
        assert_eq!(done.reasons(), ["host example.org is not among localhost"]);
    });
}

/// Spec: N1
pub(crate) fn requests_beyond_bounds_are_refused() {
    if !has_python() {
        return;
    }
    block_on(async {
        let script = format!(
            "{ASK}
def status(text):
    try:
        print(answer(ask(text)).split(' ')[1])
    except (IndexError, OSError):
        print('closed')
status('GET http://localhost/ HTTP/1.1\\nA: ' + 'x' * 100000 + '\\n\\n')
status('GET /x HTTP/1.1\\nHost: localhost\\n\\n')
status('GET ftp://localhost/x HTTP/1.1\\n\\n')
status('nonsense\\n\\n')
status('CONNECT localhost HTTP/1.1\\n\\n')"
        );
        let done = python(&walls(hosts(["localhost"]).private()), &script).await;
        assert_eq!(done.out, "431\n400\n400\n400\n400\n", "{done:?}");
    });
}

/// Spec: N3. TCP and UDP to what listens outside, by IPv4 and IPv6.
pub(crate) fn direct_connections_lead_nowhere() {
    if !has_python() {
        return;
    }
    let server = Server::start();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    block_on(async {
        let script = format!(
            "
import socket
def tried(name, work):
    try:
        work()
        print(name)
    except OSError:
        pass
tried('tcp', lambda: socket.create_connection(('127.0.0.1', {tcp}), 2))
tried('any', lambda: socket.create_connection(('0.0.0.0', {tcp}), 2))
tried('out', lambda: socket.create_connection(('192.0.2.1', 80), 2))
tried('v6', lambda: socket.create_connection(('2001:db8::1', 80), 2))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp}))",
            tcp = server.port,
            udp = udp.local_addr().unwrap().port()
        );
        let outside = python_outside(&script).await;
        assert!(outside.starts_with("tcp\nany\n"), "{outside}");
        assert!(udp.recv(&mut [0; 8]).is_ok());
        let came = server.came();
        for rules in [
            hosts(["localhost"]).private(),
            Rules::new().network(Network::Loopback),
            Rules::new().network(Network::None),
        ] {
            let done = python(&walls(rules), &script).await;
            assert_eq!(done.out, "", "{done:?}");
            let [held] = &done.reasons()[..] else { panic!("one reason: {done:?}") };
            let counted = "2 attempts to reach the network without its proxy, which leads to ";
            assert!(held.starts_with(counted), "{held}");
            assert!(udp.recv(&mut [0; 8]).is_err(), "nothing arrives");
        }
        assert_eq!(server.came(), came);
    });
}

/// Spec: N3. No resolver is reached, by no means: names leave with what is looked up.
pub(crate) fn names_are_not_resolved_inside() {
    if !has_python() {
        return;
    }
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    block_on(async {
        let script = format!(
            "
import socket
query = bytes.fromhex('000101000001000000000000') + b'\\x06secret\\x07example\\x00\\x00\\x01\\x00\\x01'
try:
    socket.getaddrinfo('secret.example.org', 80)
    print('resolved')
except OSError as e:
    pass
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(1)
s.sendto(query, ('127.0.0.1', {}))",
            udp.local_addr().unwrap().port()
        );
        python_outside(&script).await;
        assert_eq!(udp.recv(&mut [0; 64]).unwrap(), 12 + 20);
        let done = python(&walls(hosts(["api.example.com"])), &script).await;
        assert_eq!(done.out, "", "{done:?}");
        assert!(udp.recv(&mut [0; 64]).is_err());
    });
}

/// Spec: N3. A relay of another program, by a path and by an abstract name.
pub(crate) fn local_relays_are_not_reached() {
    if !has_python() {
        return;
    }
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay");
    let by_path = UnixListener::bind(&path).unwrap();
    let datagrams = folder.path().join("datagrams");
    let receiver = UnixDatagram::bind(&datagrams).unwrap();
    let name = format!("backstop-relay-{}", std::process::id());
    let by_name = SocketAddr::from_abstract_name(&name).unwrap();
    let by_name = UnixListener::bind_addr(&by_name).unwrap();
    for listener in [&by_path, &by_name] {
        listener.set_nonblocking(true).unwrap();
    }
    block_on(async {
        let script = format!(
            "
import socket
for address in ['{}', '\\0{name}']:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        try:
            socket.socket(socket.AF_UNIX, kind).connect(address)
            print('reached')
        except OSError as e:
            print(e.errno)
# A datagram socket of a pair could be sent to any name.
try:
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    a.sendto(b'x', '{datagrams}')
    print('reached')
except OSError as e:
    print(e.errno)
a, b = socket.socketpair()
a.send(b'x')
print(b.recv(1))",
            path.display(),
            datagrams = datagrams.display()
        );
        let outside = python_outside(&script).await;
        assert_eq!(outside.matches("reached").count(), 3, "{outside}");
        assert!(receiver.recv(&mut [0; 8]).is_ok());
        assert!(by_path.accept().is_ok() && by_name.accept().is_ok());
        // With walls around files too, because other programs read and write for a program through a socket.
        for rules in [
            hosts(["localhost"]),
            Rules::new().network(Network::None),
            Rules::new().write([folder.path()]),
        ] {
            let done = python(&walls(rules), &script).await;
            assert_eq!(done.out, "1\n1\n1\n1\n1\n1\n1\nb'x'\n", "{done:?}");
            assert!(by_path.accept().is_err() && by_name.accept().is_err());
        }
    });
}

/// Spec: N3. Netlink, packets, raw sockets, virtual machines, the kernel's cryptography.
pub(crate) fn other_protocols_have_no_sockets() {
    if !has_python() {
        return;
    }
    block_on(async {
        let script = "
import socket
for family in list(range(3, 10)) + list(range(11, 46)):
    for kind in (1, 2, 3, 5):
        try:
            socket.socket(family, kind)
            print(family, kind)
        except PermissionError:
            pass
for family in (2, 10):
    for protocol in (1, 6, 255):
        try:
            socket.socket(family, socket.SOCK_RAW, protocol)
            print(family, 'raw')
        except PermissionError:
            pass
";
        // Netlink is available to every user.
        assert!(python_outside("import socket; socket.socket(16, 3); print(1)").await == "1\n");
        let done = python(&walls(hosts(["localhost"])), script).await;
        assert_eq!((done.ended.code, done.out.as_str()), (Some(0), ""), "{done:?}");
    });
}

/// Spec: N1
pub(crate) fn loopback_is_this_machines_own() {
    if !has_python() {
        return;
    }
    let server = Server::start();
    block_on(async {
        let port = server.port;
        let script = format!(
            "{ASK}
for target in ['localhost', '127.0.0.1']:
    print(answer(ask('GET http://%s:{port}/ HTTP/1.1\\n\\n' % target))[:15])
told(ask('GET http://example.org/ HTTP/1.1\\n\\n'))
told(ask('CONNECT 10.0.0.1:80 HTTP/1.1\\n\\n'))"
        );
        let done = python(&walls(Rules::new().network(Network::Loopback)), &script).await;
        let denied = ["example.org", "10.0.0.1"]
            .map(|host| format!("host {host} is not the loopback of this machine"));
        let expected = format!(
            "HTTP/1.1 200 OK\nHTTP/1.1 200 OK\n403 env.network_denied: {}\n403 env.network_denied: {}\n",
            denied[0], denied[1]
        );
        assert_eq!(done.out, expected, "{done:?}");
        assert_eq!(done.reasons(), denied);
    });
}

/// Spec: N3
pub(crate) fn no_network_names_what_was_asked_for() {
    if !has_python() {
        return;
    }
    let server = Server::start();
    block_on(async {
        let walls = walls(Rules::new().network(Network::None));
        let script = format!(
            "import urllib.request; urllib.request.urlopen('http://localhost:{}/')",
            server.port
        );
        let done = python(&walls, &script).await;
        assert_eq!(done.reasons(), ["host localhost is not granted: there is no network"]);
        assert_eq!((done.ended.code, server.came()), (Some(1), 0));
    });
}
