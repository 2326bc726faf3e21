//! The inner helper: puts up the walls around itself, starts the program, and reaps ended processes.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::ClockId;
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus,
    set_child_subreaper, set_dumpable_behavior, set_parent_process_death_signal, setsid, wait,
    waitid,
};

use super::channel::{HelperChannel, let_go_of_outputs};
use super::executable::{find_executable, is_of_32_bits};
use super::{files, limits, seccomp};
use crate::plan::{InnerPlan, ProgramPlan, Refusal, Report};

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
    let executable = wall_in(&plan).map_err(|(mechanism, error)| failed(mechanism)(error))?;
    // Dropping privileges may have reset this.
    die_with_outer(channel).map_err(failed("helper"))?;
    if matches!(executable, Executable::OfOtherArchitecture) {
        return Err(Report::NotStarted {
            detail: "it is a 32-bit program, whose system calls are refused".to_owned(),
            refused_by: Some(Refusal::Architecture),
        });
    }
    let program = start(&plan.program, stdin).map_err(|error| {
        let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
        let is_by_files = is_denied && matches!(executable, Executable::Permitted);
        let refused_by = is_by_files.then_some(Refusal::Files);
        Report::NotStarted { detail: error.to_string(), refused_by }
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

/// The file of a program, as it is without the walls around files.
enum Executable {
    /// Modes or mounts forbid the start.
    Forbidden,
    /// Its system calls are not those that the filter knows.
    OfOtherArchitecture,
    Permitted,
}

/// Puts up the walls, starting with those that need rights that later ones remove.
fn wall_in(plan: &InnerPlan) -> Result<Executable, (&'static str, io::Error)> {
    let failed = |mechanism: &'static str| move |error: io::Error| (mechanism, error);
    let ruleset = plan.landlock.as_ref().map(files::ruleset).transpose();
    let ruleset = ruleset.map_err(failed("landlock"))?;
    limits::let_go_of_privileges().map_err(failed("capabilities"))?;
    let executable = match find_executable(&plan.program) {
        Some(file) if plan.seccomp.is_some() && is_of_32_bits(&file) => {
            Executable::OfOtherArchitecture
        }
        Some(_) => Executable::Permitted,
        None => Executable::Forbidden,
    };
    if let Some(ruleset) = ruleset {
        files::restrict(ruleset).map_err(failed("landlock"))?;
    }
    limits::set(&plan.limits).map_err(failed("rlimits"))?;
    if let Some(plan) = &plan.seccomp {
        seccomp::apply(plan).map_err(failed("seccomp"))?;
    }
    Ok(executable)
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
        // The kernel keeps the time of a process only until it is reaped.
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let own_cpu_ms = read_own_cpu_ms(program);
        let (ended, status) = match wait(WaitOptions::NOHANG) {
            Ok(Some(ended)) => ended,
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        if is_program(ended, program) {
            return Ok(report(status, own_cpu_ms));
        }
    }
}

/// Returns the processor time of a process without its child processes; 0 if it cannot be read.
fn read_own_cpu_ms(program: &Child) -> u64 {
    let read = || {
        let id = nix::unistd::Pid::from_raw(i32::try_from(program.id()).ok()?);
        // time of day: this is processor time.
        let used = ClockId::pid_cpu_clock_id(id).ok()?.now().ok()?;
        u64::try_from(std::time::Duration::from(used).as_millis()).ok()
    };
    read().unwrap_or(0)
}

fn is_program(ended: Pid, program: &Child) -> bool {
    u32::try_from(ended.as_raw_nonzero().get()) == Ok(program.id())
}

fn report(status: WaitStatus, own_cpu_ms: u64) -> Report {
    let cpu_ms = getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| {
        let [user, system] = [usage.user_time(), usage.system_time()]
            .map(|time| time.tv_sec() * 1_000 + time.tv_usec() / 1_000);
        u64::try_from(user + system).unwrap_or(0)
    });
    let (code, signal) = (status.exit_status(), status.terminating_signal());
    Report::Ended { code, signal, cpu_ms, own_cpu_ms }
}
