//! Start of a program within walls.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener as StdListener;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_process::CompleteInput;
use layer0::error::EnvError;
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::follow::Following;
use super::parent::ParentChannel;
use super::{ProgramInput, Walled, WalledProgram};
use crate::helper::names::OUTER;
use crate::plan::{InnerPlan, IsolationPlan, KernelCounts, Outer, ProgramPlan, Refusal, Report};
use crate::proxy::{Interventions, serve};
use crate::support::Groups;
use crate::{Network, Walls};

/// Time limit of the helper for setting up the walls.
const LONGEST: Duration = Duration::from_secs(20);

/// Names of proxy variables.
const PROXY: [&str; 6] =
    ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

/// Starts a program; on failure, everything started is ended.
pub(crate) async fn spawn(walls: Walls, program: WalledProgram) -> Result<Walled, EnvError> {
    let mut begun = begin(&walls)?;
    let provided = tokio::select! {
        provided = provide(&walls, &program, &mut begun) => provided,
        () = SystemClock.sleep(LONGEST) => {
            let _ = begun.helper.start_kill();
            Err(provision_error("helper", "it does not answer"))
        }
    };
    let provided = match provided {
        Ok(provided) => provided,
        Err(error) => {
            drop(begun.channel);
            // The helper ends by itself, after it has removed its groups.
            let _ = begun.helper.wait().await;
            return Err(error);
        }
    };
    let StartedHelper { channel, mut helper, groups, id } = begun;
    let Provided { listener, stdin } = provided;
    let (stdout, stderr) = (helper.stdout.take(), helper.stderr.take());
    let notes = Arc::new(Interventions::default());
    let (sender, end) = watch::channel(None);
    let proxy = listener.map(|listener| serve(listener, walls.gate().clone(), Arc::clone(&notes)));
    let following = Following {
        channel,
        helper,
        groups,
        rules: walls.rules().clone(),
        notes: Arc::clone(&notes),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(following.run(proxy, sender));
    Ok(Walled { stdin, stdout, stderr, id, walls, notes, end, _tasks: tasks })
}

/// A started helper.
struct StartedHelper {
    channel: ParentChannel,
    helper: Child,
    groups: Groups,
    id: u32,
}

/// The resources of a started program.
struct Provided {
    listener: Option<TcpListener>,
    stdin: Option<ChildStdin>,
}

fn begin(walls: &Walls) -> Result<StartedHelper, EnvError> {
    let decision = walls.decision();
    let (channel, theirs) =
        ParentChannel::pair().map_err(|error| provision_error("channel", error))?;
    let homes = walls.support().homes();
    let groups = Groups::create(homes, decision.group_processes, decision.group_memory);
    let groups = groups.map_err(|error| provision_error("cgroup", error))?;
    let helper = Command::new(walls.helper().path())
        .arg0(OUTER)
        .env_clear()
        .current_dir("/")
        // This process handles signals from the terminal.
        .process_group(0)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let helper = helper.map_err(|error| {
        provision_error("helper", format!("`{}`: {error}", walls.helper().path().display()))
    })?;
    let id = helper.id().unwrap_or_default();
    Ok(StartedHelper { channel, helper, groups, id })
}

async fn provide(
    walls: &Walls,
    program: &WalledProgram,
    begun: &mut StartedHelper,
) -> Result<Provided, EnvError> {
    let broken = |error: io::Error| provision_error("helper", error);
    let (theirs, ours) =
        input(&program.input).map_err(|error| provision_error("standard input", error))?;
    let decision = walls.decision();
    let channel = &mut begun.channel;
    let surroundings = IsolationPlan {
        namespaces: decision.namespaces,
        network: decision.network,
        listens: decision.listens,
        written: decision.written_paths().map(<[_]>::to_vec),
        groups: begun.groups.plan(),
    };
    channel.send(&Outer::Run(surroundings), None).await.map_err(broken)?;
    let listener = ready(channel).await?;
    let port = match &listener {
        Some(listener) => Some(listener.local_addr().map_err(broken)?.port()),
        None => None,
    };
    let plan = inner(walls, program, port);
    channel.send(&plan, Some(theirs.as_fd())).await.map_err(broken)?;
    drop(theirs);
    match next(channel).await? {
        (Report::Started, _) => {}
        (Report::NotStarted { detail, refused_by }, _) => {
            let name = &program.name;
            return Err(match refused_by {
                Some(Refusal::Files) if has_file_walls(walls) => EnvError::IsolationViolation(
                    format!("program `{name}` is not granted: {detail}"),
                ),
                Some(Refusal::Architecture) => EnvError::IsolationViolation(format!(
                    "program `{name}` is not started: {detail}"
                )),
                _ => EnvError::ProvisionFailed(format!(
                    "program `{name}` cannot be started: {detail}"
                )),
            });
        }
        (other, _) => return Err(error_from_report(&other)),
    }
    let stdin = ours.map(|ours| ChildStdin::from_std(std::process::ChildStdin::from(ours)));
    let stdin = stdin.transpose().map_err(broken)?;
    Ok(Provided { listener, stdin })
}

/// Returns whether the kernel holds walls around files, which may not be so by `best_effort`.
fn has_file_walls(walls: &Walls) -> bool {
    walls.decision().landlock.as_ref().is_some_and(|landlock| landlock.files.is_some())
}

/// Returns the program's end of its standard input, and the writing end if it is piped.
fn input(input: &ProgramInput) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    let (theirs, ours) = match input {
        ProgramInput::First(first) => CompleteInput::open(first)?,
        ProgramInput::Piped => CompleteInput::open(&[])?,
        ProgramInput::Whole(whole) => return Ok((CompleteInput::new(whole)?.into(), None)),
    };
    Ok((theirs.into(), Some(ours)))
}

/// Waits for the inner helper; returns the listener from the program's network, if there is one.
async fn ready(channel: &mut ParentChannel) -> Result<Option<TcpListener>, EnvError> {
    match next(channel).await? {
        (Report::Ready, file) => {
            let listener = file.map(|file| TcpListener::from_std(StdListener::from(file)));
            listener.transpose().map_err(|error| provision_error("proxy", error))
        }
        (other, _) => Err(error_from_report(&other)),
    }
}

async fn next(channel: &mut ParentChannel) -> Result<(Report, Option<OwnedFd>), EnvError> {
    match channel.receive().await {
        Ok(Some(received)) => Ok(received),
        Ok(None) => Err(provision_error("helper", "it has ended")),
        Err(error) => Err(provision_error("helper", error)),
    }
}

fn error_from_report(report: &Report) -> EnvError {
    match report {
        Report::Failed { mechanism, detail } => provision_error(mechanism, detail),
        Report::Closed(KernelCounts { killed_for_memory: 1.., .. }) => {
            EnvError::ResourceExceeded("memory reached while the program was started".to_owned())
        }
        // Without namespaces, a program can end it before its own start is reported, and so can others.
        Report::Closed(_) => EnvError::Other("the inner helper was killed".into()),
        other => provision_error("helper", format!("it reported {other:?}")),
    }
}

/// Builds the message to the inner helper.
fn inner(walls: &Walls, program: &WalledProgram, port: Option<u16>) -> InnerPlan {
    let decision = walls.decision();
    let mut landlock = decision.landlock.clone();
    if let Some(landlock) = &mut landlock
        && decision.only_port
    {
        landlock.only_port = port;
    }
    let mut variables = program.variables.clone();
    if walls.rules().network != Network::All {
        name_proxy(&mut variables, port);
    }
    let program = ProgramPlan {
        name: program.name.clone(),
        arguments: program.arguments.clone(),
        folder: program.folder.clone(),
        variables,
    };
    let limits = decision.limits.clone();
    let seccomp = decision.seccomp.clone();
    InnerPlan { program, is_init: decision.namespaces, limits, landlock, seccomp }
}

/// Sets the variables of the proxy, or removes them if there is none.
fn name_proxy(variables: &mut BTreeMap<String, String>, port: Option<u16>) {
    variables.extend(["no_proxy", "NO_PROXY"].map(|name| (name.to_owned(), String::new())));
    for name in PROXY {
        match port {
            Some(port) => variables.insert(name.to_owned(), format!("http://127.0.0.1:{port}")),
            None => variables.remove(name),
        };
    }
    if port.is_some() {
        // Node.js uses the proxy only with this variable.
        variables.insert("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
    }
}

fn provision_error(mechanism: &str, detail: impl std::fmt::Display) -> EnvError {
    EnvError::ProvisionFailed(format!("{mechanism}: {detail}"))
}

#[cfg(test)]
mod tests {
    use layer0::Failure;

    use super::*;

    /// Spec: N3. Who killed the helper is not known.
    #[test]
    fn killed_helper_is_no_violation() {
        let killed = error_from_report(&Report::Closed(KernelCounts::default()));
        assert_eq!(killed.code(), "env.other");
        let counted = KernelCounts { killed_for_memory: 1, ..KernelCounts::default() };
        assert_eq!(error_from_report(&Report::Closed(counted)).code(), "env.resource_exceeded");
    }
}
