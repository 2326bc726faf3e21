//! Checks of a store on a PostgreSQL server, and of the server's durability.

use std::collections::BTreeMap;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{Inbox, RunFilter, Runs};
use backstop_store_postgres::{
    Database, OpenError, Options, ServerInfo, StrandedRun, UnservedQueue,
};

use super::ahead::ahead_of_the_clock;
use super::finding::Finding;
use super::runs;
use crate::exit::CliError;
use crate::output::format_count;
use crate::store::{self, connections};
use crate::{interrupted, unworked};

/// Checks a database. Creates and changes nothing.
pub(super) async fn look_at(url: &str) -> Vec<Finding> {
    let options = match Options::new(url) {
        Ok(options) => options,
        Err(error) => return vec![Finding::from_error("store", &error.into())],
    };
    let takes = Finding::ok("store", connections(options.most_connections()));
    let database = match Database::connect_read_only(options.clone()).await {
        Ok(database) => database,
        Err(error @ OpenError::Missing(_)) => {
            let absent = format!("{error}: it is made by the first run");
            return match Database::is_direct(options).await {
                Ok(is_direct) => vec![Finding::ok("store", absent), pooling(is_direct), takes],
                Err(error) => vec![Finding::from_error("store", &error.into())],
            };
        }
        Err(error) => return vec![Finding::from_error("store", &error.into())],
    };
    let looked = look_into(&database, takes).await;
    database.close().await;
    looked.unwrap_or_else(|error| vec![Finding::from_error("store", &error)])
}

/// Returns the finding whether a proxy pools transactions, with the consequences.
fn pooling(is_direct: bool) -> Finding {
    let what = match is_direct {
        true => "each connection has a process of the server",
        false => {
            "connections are shared by a proxy that pools transactions: a process that dies is known by its \
             lease alone, after 15 s, what others write is seen within half a second, and each statement is a \
             transaction of its own, in three round trips more; connecting to the server itself has none of that"
        }
    };
    Finding::ok("store", what)
}

async fn look_into(database: &Database, takes: Finding) -> Result<Vec<Finding>, CliError> {
    let log = database.log();
    let newest = log.runs(RunFilter::new().limit(1)).await?;
    let waiting = u64::try_from(log.open_approvals().await?.len()).unwrap_or(u64::MAX);
    let ServerInfo { version, synchronous_commit, standbys, is_direct, .. } =
        database.server().await?;
    let mut findings = vec![Finding::ok(
        "store",
        format!("PostgreSQL {version} can be opened: {} open", format_count(waiting, "approval")),
    )];
    findings.push(match &*synchronous_commit {
        "off" => Finding::mend(
            "store",
            "synchronous_commit is off: a crash of the server loses what was acknowledged last",
            "set it to `on` for this database",
        ),
        level => Finding::ok(
            "store",
            format!(
                "synchronous_commit is {level}, {} connected",
                format_count(standbys, "standby server")
            ),
        ),
    });
    findings.extend([pooling(is_direct), takes]);
    let roots = interrupted::find_roots(&store::AnyDatabase::Postgres(database.clone())).await?;
    findings.push(runs::interrupted_finding(roots.len()));
    let queue = database.queue();
    findings.push(workers(&queue.list_stranded().await?));
    findings.push(queues(&queue.list_unserved().await?));
    findings.extend(ahead_of_the_clock(&newest, SystemClock.now()));
    Ok(findings)
}

/// Returns the finding about runs that no worker resumes.
fn workers(stranded: &[StrandedRun]) -> Finding {
    let all = match stranded.len() {
        0 => return Finding::ok("workers", "no run is stranded"),
        1 => "1 run is stranded".to_owned(),
        runs => format!("{runs} runs are stranded"),
    };
    let mut of_agents: BTreeMap<&str, u64> = BTreeMap::new();
    for run in stranded {
        *of_agents.entry(&run.agent).or_default() += 1;
    }
    let of_agents: Vec<String> =
        of_agents.iter().map(|(agent, runs)| format!("{runs} of `{agent}`")).collect();
    Finding::mend(
        "workers",
        format!(
            "{all} ({}): no live worker has the agent as it was when the run began",
            of_agents.join(", ")
        ),
        "start a worker with that definition, or one with --adopt; `backstop runs --stuck` lists the runs",
    )
}

/// Returns the finding about queued runs that no worker takes.
fn queues(unserved: &[UnservedQueue]) -> Finding {
    if unserved.is_empty() {
        return Finding::ok("queue", "no queued run waits for a worker that is not there");
    }
    let queues: Vec<String> = unserved.iter().map(unworked::describe_unserved_queue).collect();
    Finding::mend(
        "queue",
        queues.join("; "),
        "start a worker of these agents with `--queue NAME` for each queue; `backstop queue list` lists the runs",
    )
}
