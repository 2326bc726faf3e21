//! The inner helper: puts up the walls around itself, starts the program, and reaps ended processes.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sys::resource::{UsageWho, getrusage};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus, set_child_subreaper,
    set_dumpable_behavior, set_parent_process_death_signal, setsid, wait,
};

use super::channel::{HelperChannel, let_go_of_outputs};
use super::executable::can_start;
use super::{files, limits, seccomp};
use crate::plan::{InnerPlan, ProgramPlan, Report};

/// Runs the inner helper, and returns its exit code.
pub(super) fn run() -> i32 {
    let Ok(channel) = HelperChannel::take() else { return 1 };
    match provide(&channel) {
        Ok(()) => 0,
        Err(report) => {
            channel.report(&report);
            1
        }
    }
}

fn provide(channel: &HelperChannel) -> Result<(), Report> {
    let failed = |mechanism: &'static str| {
        move |error: io::Error| Report::Failed {
            mechanism: mechanism.to_owned(),
            detail: error.to_string(),
        }
    };
    die_with_outer(channel).map_err(failed("helper"))?;
    let (plan, stdin): (InnerPlan, _) = channel.receive().map_err(failed("helper"))?;
    let stdin = stdin.ok_or_else(|| failed("helper")(io::Error::other("no standard input")))?;
    let dumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    dumpable.map_err(io::Error::from).map_err(failed("dumpable"))?;
    // A separate session has no terminal; process 1 of a namespace is not the leader of an earlier one.
    setsid().map_err(io::Error::from).map_err(failed("session"))?;
    if !plan.is_init {
        let this = Some(rustix::process::getpid());
        set_child_subreaper(this).map_err(io::Error::from).map_err(failed("subreaper"))?;
    }
    let can_start = wall_in(&plan).map_err(|(mechanism, error)| failed(mechanism)(error))?;
    // Dropping privileges may have reset this.
    die_with_outer(channel).map_err(failed("helper"))?;
    let program = start(&plan.program, stdin).map_err(|error| Report::NotStarted {
        detail: error.to_string(),
        is_denied: can_start && error.kind() == io::ErrorKind::PermissionDenied,
    })?;
    channel.report(&Report::Started);
    let_go_of_outputs().map_err(failed("helper"))?;
    channel.report(&wait_for(&program).map_err(failed("helper"))?);
    Ok(())
}

/// Makes this process die with the outer helper, whatever the reason.
fn die_with_outer(channel: &HelperChannel) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if channel.is_closed() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
}

/// Puts up the walls, starting with those that need rights that later ones remove. Returns whether the program could be
/// started without the walls around files.
fn wall_in(plan: &InnerPlan) -> Result<bool, (&'static str, io::Error)> {
    let failed = |mechanism: &'static str| move |error: io::Error| (mechanism, error);
    let ruleset = plan.landlock.as_ref().map(files::ruleset).transpose();
    let ruleset = ruleset.map_err(failed("landlock"))?;
    limits::let_go_of_privileges().map_err(failed("capabilities"))?;
    let can_start = can_start(&plan.program);
    if let Some(ruleset) = ruleset {
        files::restrict(ruleset).map_err(failed("landlock"))?;
    }
    limits::set(&plan.limits).map_err(failed("rlimits"))?;
    if let Some(plan) = &plan.seccomp {
        seccomp::apply(plan).map_err(failed("seccomp"))?;
    }
    Ok(can_start)
}

fn start(program: &ProgramPlan, stdin: OwnedFd) -> io::Result<Child> {
    // A missing folder and a missing program would have the same error text.
    fs::metadata(&program.folder).map_err(|error| {
        io::Error::new(error.kind(), format!("folder `{}`: {error}", program.folder.display()))
    })?;
    Command::new(&program.name)
        .args(&program.arguments)
        .current_dir(&program.folder)
        .env_clear()
        .envs(&program.variables)
        .stdin(Stdio::from(stdin))
        .process_group(0)
        .spawn()
}

/// Reaps ended processes until the program ends.
fn wait_for(program: &Child) -> io::Result<Report> {
    loop {
        let (ended, status) = match wait(WaitOptions::empty()) {
            Ok(Some(ended)) => ended,
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        if is_program(ended, program) {
            return Ok(report(status));
        }
    }
}

fn is_program(ended: Pid, program: &Child) -> bool {
    u32::try_from(ended.as_raw_nonzero().get()) == Ok(program.id())
}

fn report(status: WaitStatus) -> Report {
    let cpu_ms = getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| {
        let [user, system] = [usage.user_time(), usage.system_time()]
            .map(|time| time.tv_sec() * 1_000 + time.tv_usec() / 1_000);
        u64::try_from(user + system).unwrap_or(0)
    });
    Report::Ended { code: status.exit_status(), signal: status.terminating_signal(), cpu_ms }
}
