//! A proxy before a server, as in many deployments.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use super::binaries::not_tested;
use super::launch::{KEEPER, Own, free_port, new_folder, set_user};

/// Paths of Debian's package.
const PROGRAMS: [&str; 2] = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"];
/// Number of connections to the server that all clients of a database share.
const CONNECTIONS: usize = 4;

/// A pgbouncer that pools transactions: consecutive transactions of two clients may share one connection of the server,
/// and those of one client may use two. It does not support prepared statements.
#[derive(Debug)]
pub struct Pooler {
    server: String,
    port: u16,
    _own: Own,
}

impl Pooler {
    pub(super) fn start(server: &str) -> Option<Self> {
        let Some(program) = PROGRAMS.into_iter().map(PathBuf::from).find(|path| path.exists())
        else {
            not_tested("no pgbouncer. Install Debian's package of that name.");
            return None;
        };
        let address = server.rsplit_once('@').map_or(server, |(_, address)| address);
        let (host, server_port) = address.split_once(':').unwrap_or((address, "5432"));
        let (folder, port) = (new_folder(), free_port());
        let settings = format!(
            "[databases]\n* = host={host} port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = trust\nauth_file = {users}\npool_mode = transaction\n\
             default_pool_size = {CONNECTIONS}\nmax_client_conn = 1000\nunix_socket_dir =\n\
             logfile = {log}\n",
            users = folder.join("users").display(),
            log = folder.join("pooler.log").display(),
        );
        std::fs::write(folder.join("users"), "\"backstop\" \"\"\n").expect("a file can be written");
        std::fs::write(folder.join("settings"), settings).expect("a file can be written");
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "sh"]).arg(&folder).arg("TERM");
        keeper.arg(program).arg(folder.join("settings")).current_dir("/");
        set_user(&mut keeper);
        let keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let keeper = Mutex::new(keeper.spawn().expect("a shell can be run"));
        Some(Self { server: address.to_owned(), port, _own: Own { folder, keeper } })
    }

    /// Returns the URL of a database of the server, through the proxy.
    #[must_use]
    pub fn through(&self, url: &str) -> String {
        url.replace(&self.server, &format!("127.0.0.1:{}", self.port))
    }
}
