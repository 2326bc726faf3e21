//! Decisions of people, on the disk before they are acknowledged: the system calls of the command show it.

use std::process::Command;

use crate::bench::{Bench, Ran};
use crate::running::{ASKS, REFUNDS};
use crate::sqlite;

/// Runs the command under `strace`, and returns its calls that write to files or sync them; `None` where there is none.
#[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
fn traced(bench: &Bench, args: &[&str]) -> Option<String> {
    let trial = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    if !trial.is_ok_and(|trial| trial.status.success()) {
        eprintln!("not tested: there is no `strace` that may trace here");
        return None;
    }
    let plain = bench.command(args);
    let mut command = Command::new("strace");
    command.args([
        "-f",
        "-y",
        "-s",
        "200",
        "-o",
        "calls",
        "-e",
        "trace=write,pwrite64,fsync,fdatasync",
    ]);
    command.arg(plain.get_program()).args(plain.get_args()).current_dir(bench.path());
    command.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Ran::of(command.output().unwrap()).ok();
    Some(std::fs::read_to_string(bench.path().join("calls")).unwrap())
}

/// Spec: A1, D2. Whatever durability the runs have.
#[test]
fn decision_is_synced_before_it_is_acknowledged() {
    for decide in [&["approve", "last", "--by", "ada"][..], &["deny", "last", "--by", "ada"]] {
        let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
        bench.agent(REFUNDS, ASKS);
        bench.run(&["run", "agent.toml"]).fails(4, "waiting");
        let _reads = sqlite::read(&bench.path().join("x.db"));
        let Some(calls) = traced(&bench, decide) else { return };
        let of_log: Vec<&str> = calls.lines().filter(|line| line.contains("x.db-wal>")).collect();
        let last = of_log.last().unwrap();
        assert!(last.contains("sync("), "{last} is the last of {}", of_log.len());
        let acknowledged = calls.find("by ada").unwrap();
        assert!(calls.find(last).unwrap() < acknowledged, "{calls}");
    }
}
