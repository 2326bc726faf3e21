//! The launch of a server.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::binaries::not_tested;

/// The administrator of the databases.
const USER: &str = "backstop";
/// Script of the shell that keeps the server: it starts the server, starts it again on request, and stops it and
/// removes its files when its standard input ends, which it does whenever the test process dies.
pub(super) const KEEPER: &str = r#"
dir=$1; signal=$2; shift 2
start() { "$@" >>"$dir/log" 2>&1 </dev/null & pid=$!; }
start "$@"
while read -r word; do start "$@"; done
kill "-$signal" "$pid" 2>/dev/null; wait; rm -rf "$dir"
"#;
/// Script that root runs first for a small disk: it mounts a disk that only this server sees, and that is removed with
/// it, and becomes the user of the server.
const MOUNTER: &str = r#"
user=$1; megabytes=$2; place=$3; shift 3
mount -t tmpfs -o "size=${megabytes}m,uid=$user,gid=$user,mode=700" tmpfs "$place" || exit 1
exec setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
"#;
/// Mount point of the small disk of a server, for this server alone.
pub(super) const SMALL_DISK: &str = "/mnt";
/// File of the authority of a server with TLS, in its folder.
pub(super) const ROOT_CERTIFICATE: &str = "root.pem";
/// Access rules: members of the role `with_password` need their passwords, all others need none.
const ACCESS: &str = "local all all trust\n\
    host all +with_password 127.0.0.1/32 scram-sha-256\n\
    host all all 127.0.0.1/32 trust\n\
    host replication all 127.0.0.1/32 trust\n";
/// Ids of the user and group that run the server if root runs the tests: PostgreSQL refuses root.
const UNPRIVILEGED: u32 = 65_534;

/// A server that was started here.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) folder: PathBuf,
    pub(super) keeper: Mutex<Child>,
}

impl Drop for Own {
    fn drop(&mut self) {
        let keeper = self.keeper.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(keeper.stdin.take());
        let _ = keeper.wait();
    }
}

/// A server to start.
pub(super) struct Launch {
    programs: PathBuf,
    folder: PathBuf,
    settings: Vec<String>,
    disk: Option<u32>,
    /// URL of the server that this one is a standby of.
    primary: Option<String>,
}

impl Launch {
    pub(super) fn of(programs: PathBuf) -> Self {
        Self { programs, folder: new_folder(), settings: Vec::new(), disk: None, primary: None }
    }

    pub(super) fn settings(mut self, settings: &[&str]) -> Self {
        self.settings.extend(settings.iter().map(|setting| (*setting).to_owned()));
        self
    }

    /// Makes the server a standby of another one.
    pub(super) fn standby(mut self, primary: &str) -> Option<Self> {
        if !self.programs.join("pg_basebackup").exists() {
            not_tested("no standby can be made here, which takes pg_basebackup");
            let _ = std::fs::remove_dir_all(&self.folder);
            return None;
        }
        self.primary = Some(primary.to_owned());
        Some(self)
    }

    /// Gives the server a disk of its own, with this size in MiB.
    pub(super) fn disk(mut self, mebibytes: u32) -> Option<Self> {
        let can_mount = Command::new("unshare")
            .args(["--mount", "sh", "-c", "mount -t tmpfs tmpfs \"$1\" && setpriv --version", "sh"])
            .arg(SMALL_DISK)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !can_mount.is_ok_and(|status| status.success()) {
            not_tested("no disk can be mounted here, which takes root, unshare and setpriv");
            let _ = std::fs::remove_dir_all(&self.folder);
            return None;
        }
        self.disk = Some(mebibytes);
        Some(self)
    }

    /// Makes an authority and its certificate for `localhost`, and configures the server with it.
    pub(super) fn tls(mut self) -> Option<Self> {
        if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
            not_tested("no certificate can be made here, which takes openssl");
            let _ = std::fs::remove_dir_all(&self.folder);
            return None;
        }
        std::fs::write(self.folder.join("names"), "subjectAltName=DNS:localhost\n")
            .expect("the folder can be written to");
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        self.openssl(&format!(
            "req -x509 {key} -keyout root.key -out {ROOT_CERTIFICATE} -days 2 -subj /CN=authority"
        ));
        self.openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN=localhost"));
        self.openssl(&format!(
            "x509 -req -in server.csr -CA {ROOT_CERTIFICATE} -CAkey root.key -CAcreateserial -days 2 \
             -extfile names -out server.pem"
        ));
        let file = |name: &str| self.folder.join(name).display().to_string();
        let settings = [
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", file("server.pem")),
            format!("ssl_key_file={}", file("server.key")),
        ];
        self.settings.extend(settings);
        Some(self)
    }

    fn openssl(&self, arguments: &str) {
        let mut openssl = Command::new("openssl");
        openssl.args(arguments.split_whitespace()).current_dir(&self.folder);
        set_user(&mut openssl);
        let made = openssl.output().expect("openssl can be run");
        assert!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
    }

    /// Starts the server until the returned guard is dropped; returns its URL. It does not answer at once.
    pub(super) fn launch(&self) -> (Own, String) {
        let (keeper, url) = self.launch_until(Stdio::piped());
        (Own { folder: self.folder.clone(), keeper: Mutex::new(keeper) }, url)
    }

    /// Starts the server as [`Launch::launch`] does, until the standard input of its keeper ends.
    pub(super) fn launch_until(&self, end: impl Into<Stdio>) -> (Child, String) {
        let data = self.folder.join("data");
        match &self.primary {
            Some(primary) => self.copy_data(&data, primary),
            None => self.make_data(&data),
        }
        std::fs::write(data.join("pg_hba.conf"), ACCESS).expect("its folder can be written to");
        let port = free_port();
        let mut keeper = match self.disk {
            Some(mebibytes) => {
                let mut unshare = Command::new("unshare");
                unshare.args(["--mount", "sh", "-c", MOUNTER, "sh"]);
                unshare.args([UNPRIVILEGED.to_string(), mebibytes.to_string()]);
                unshare.args([SMALL_DISK, "sh"]);
                unshare
            }
            None => {
                let mut shell = Command::new("sh");
                set_user(&mut shell);
                shell
            }
        };
        keeper.args(["-c", KEEPER, "sh"]).arg(&self.folder).arg("QUIT");
        keeper.arg(self.programs.join("postgres")).arg("-D").arg(&data).current_dir("/");
        let socket = format!("unix_socket_directories={}", self.folder.display());
        let port_is = format!("port={port}");
        let all = [
            "listen_addresses=127.0.0.1",
            "max_connections=400",
            "shared_buffers=64MB",
            // The disk of a test machine may be small.
            "min_wal_size=32MB",
            "max_wal_size=64MB",
        ];
        let own = self.settings.iter().map(|setting| &**setting);
        for setting in all.into_iter().chain([&*socket, &*port_is]).chain(own) {
            keeper.args(["-c", setting]);
        }
        // A group of its own: it ends with its standard input, and not before, when the test's group is interrupted.
        keeper.process_group(0).stdin(end).stdout(Stdio::null()).stderr(Stdio::null());
        let keeper = keeper.spawn().expect("a shell can be run");
        (keeper, format!("postgres://{USER}@127.0.0.1:{port}"))
    }

    fn make_data(&self, data: &Path) {
        let mut initdb = Command::new(self.programs.join("initdb"));
        initdb.current_dir("/").env("LC_ALL", "C");
        initdb.args([
            "--no-sync",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--username",
            USER,
        ]);
        set_user(&mut initdb);
        let made = initdb.arg(data).output().expect("initdb can be run");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    }

    fn copy_data(&self, data: &Path, primary: &str) {
        let mut copy = Command::new(self.programs.join("pg_basebackup"));
        copy.current_dir("/").env("LC_ALL", "C");
        copy.args([
            "--write-recovery-conf",
            "--wal-method=stream",
            "--checkpoint=fast",
            "--no-sync",
        ]);
        copy.arg("--dbname").arg(primary).arg("--pgdata").arg(data);
        set_user(&mut copy);
        let copied = copy.output().expect("pg_basebackup can be run");
        let said = String::from_utf8_lossy(&copied.stderr).into_owned();
        assert!(copied.status.success(), "pg_basebackup: {said}");
    }
}

pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("it has an address").port()
}

/// Makes a folder that belongs to the user of the server.
pub(super) fn new_folder() -> PathBuf {
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let name = format!("backstop-postgres-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).expect("a folder can be made");
    if is_root() {
        std::os::unix::fs::chown(&folder, Some(UNPRIVILEGED), Some(UNPRIVILEGED))
            .expect("root may do that");
    }
    folder
}

/// PostgreSQL refuses to run as the administrator of the machine.
pub(super) fn set_user(command: &mut Command) {
    if is_root() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
