//! Checks of the store and its disk.

use std::path::{Path, PathBuf};

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::RunFilter;
use backstop_event_log::StoreUrl;
use backstop_store_sqlite::OpenOptions;

use super::ahead::ahead_of_the_clock;
use super::finding::Finding;
use super::{runs, server};
use crate::exit::CliError;
use crate::interrupted;
use crate::output::format_count;
use crate::store::{self, Chosen};

/// Smallest free space to continue with, in bytes: 256 MiB.
const LITTLE: u64 = 256 * 1024 * 1024;

/// Checks a store and its disk. Creates nothing.
pub(super) async fn look_at(chosen: &Chosen) -> Vec<Finding> {
    let path = match &chosen.url {
        StoreUrl::Sqlite(path) | StoreUrl::SqliteOnNetwork(path) => path.clone(),
        StoreUrl::Postgres(url) => return server::look_at(url).await,
        url => return vec![Finding::ok("store", format!("{url} is kept nowhere"))],
    };
    look_at_file(chosen, &path, store::open_options(&chosen.url)).await
}

async fn look_at_file(chosen: &Chosen, path: &Path, options: OpenOptions) -> Vec<Finding> {
    let looked = match options.check_place(path) {
        Err(error) => Err(error.into()),
        Ok(()) if path.exists() => look_into(chosen, path).await,
        Ok(()) => Ok(vec![absent(path)]),
    };
    let mut findings = looked.unwrap_or_else(|error| vec![Finding::from_error("store", &error)]);
    findings.extend(disk(path));
    findings
}

async fn look_into(chosen: &Chosen, path: &Path) -> Result<Vec<Finding>, CliError> {
    let Some(database) = store::open_read_only(chosen).await? else {
        return Ok(vec![absent(path)]);
    };
    let log = database.log();
    let looked = async {
        if let Some(damage) = database.find_damage().await? {
            return Ok(Err(damage));
        }
        let newest = log.runs(RunFilter::new().limit(1)).await?;
        let open = log.open_approvals().await?;
        let interrupted = interrupted::find_roots(&database).await?;
        Ok::<_, CliError>(Ok((newest, open, interrupted.len())))
    };
    let looked = looked.await;
    database.close().await;
    let (newest, open, interrupted) = match looked? {
        Ok(found) => found,
        Err(damage) => return Ok(vec![damaged(path, &damage)]),
    };
    let size = std::fs::metadata(path).map_or(0, |file| file.len());
    let waiting = u64::try_from(open.len()).unwrap_or(u64::MAX);
    let what = format!(
        "{} can be opened: {}, {} open",
        path.display(),
        format_count(size, "byte"),
        format_count(waiting, "approval")
    );
    let mut findings = vec![match is_read_only(path) {
        true => Finding::mend(
            "store",
            format!("{} cannot be written to", path.display()),
            "make file and folder writable for you, or name another store with --store URL",
        ),
        false => Finding::ok("store", what),
    }];
    findings.push(runs::interrupted_finding(interrupted));
    findings.extend(ahead_of_the_clock(&newest, SystemClock.now()));
    Ok(findings)
}

fn damaged(path: &Path, damage: &str) -> Finding {
    // The first line names the database.
    let problem = damage.lines().last().unwrap_or_default();
    Finding::mend(
        "store",
        format!("{} is damaged: {problem}", path.display()),
        "keep the file, and restore a backup; `backstop verify --all` finds the records that are whole",
    )
}

/// Returns whether this process may not write to an existing file, or make the files next to it.
fn is_read_only(path: &Path) -> bool {
    let is_file_closed = std::fs::OpenOptions::new().append(true).open(path).is_err();
    is_file_closed || path.canonicalize().is_ok_and(|path| !path.parent().is_some_and(is_writable))
}

fn absent(path: &Path) -> Finding {
    match nearest_folder(path) {
        Some(folder) if is_writable(&folder) => {
            Finding::ok("store", format!("{} is made by the first run", path.display()))
        }
        folder => {
            let folder = folder.unwrap_or_else(|| path.to_owned());
            Finding::mend(
                "store",
                format!("{} cannot be made: {} is not writable", path.display(), folder.display()),
                "make the folder writable for you, or name another store with --store URL",
            )
        }
    }
}

/// Returns the nearest existing folder above a path.
fn nearest_folder(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    absolute.ancestors().skip(1).find(|folder| folder.is_dir()).map(Path::to_owned)
}

#[cfg(unix)]
fn is_writable(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(not(unix))]
fn is_writable(folder: &Path) -> bool {
    std::fs::metadata(folder).is_ok_and(|folder| !folder.permissions().readonly())
}

#[cfg(unix)]
fn disk(path: &Path) -> Option<Finding> {
    let folder = nearest_folder(path)?;
    let disk = rustix::fs::statvfs(&folder).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let room = format!("{} MiB free at {}", free / (1024 * 1024), folder.display());
    Some(match free < LITTLE {
        true => Finding::mend(
            "disk",
            room,
            "make room; `backstop runs prune`, `errors prune` and `vacuum` give back what is not needed",
        ),
        false => Finding::ok("disk", room),
    })
}

#[cfg(not(unix))]
fn disk(_: &Path) -> Option<Finding> {
    None
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingState;
    use super::*;

    /// Spec: W8, D2. The finding is the refusal of `run`, with what to do about it.
    #[tokio::test]
    async fn network_file_system_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let url = format!("sqlite:{}", path.display());
        let chosen = store::choose_from_flag(&url, "--store").map_err(|error| error.to_string());
        let chosen = chosen.unwrap();
        let options = store::open_options(&chosen.url).probe(|_| Some("nfs4".to_owned()));
        let findings = look_at_file(&chosen, &path, options).await;
        let Finding { check, state, message, hint } = &findings[0];
        assert!(*check == "store" && *state == FindingState::Mend, "{message}");
        assert!(message.contains("(nfs4)"), "{message}");
        let hint = hint.as_deref().unwrap();
        assert!(hint.contains("local disk") && hint.contains("`?network_fs=1`"), "{hint}");
        let local = look_at_file(&chosen, &path, store::open_options(&chosen.url)).await;
        assert!(local[0].state == FindingState::Ok, "{}", local[0].message);
    }
}
