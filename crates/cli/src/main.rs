//! The `backstop` command: run an agent, read what it left behind, rehearse how it fails.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 finished, 1 the
//! run failed, 2 usage or configuration, 3 stopped, 4 waiting for approval, 5 storage, 6 replay
//! diverged or log tampered.

mod args;
mod assemble;
mod commands;
mod exit;
mod output;
mod progress;
mod prompt;
mod recorded;
mod store;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};
use crate::exit::CliError;

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::builder()
                .with_env_var("BACKSTOP_LOG")
                .try_from_env()
                .unwrap_or_else(|_| "off".into()),
        )
        .with_writer(std::io::stderr)
        .init();
    // For tests of agents: nothing may leave the machine.
    if std::env::var_os("BACKSTOP_DENY_REAL_REQUESTS").is_some_and(|value| value != "0") {
        provider_http::deny_real_requests();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&CliError::internal("starting", error)),
    };
    let result = runtime.block_on(dispatch(args.command));
    // A tool that blocks a thread does not hold up the end.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(error) => exit::report(&error),
    }
}

async fn dispatch(command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Run(args) => commands::run::run(args).await,
        Command::Resume(args) => commands::resume::run(args).await,
        Command::Replay(args) => commands::replay::run(args).await,
        Command::Fork(args) => commands::fork::run(args).await,
        Command::Diff(args) => commands::diff::run(args).await,
        Command::Approvals(args) => commands::approvals::list(args).await,
        Command::Approve(args) => commands::approvals::approve(args).await,
        Command::Deny(args) => commands::approvals::deny(args).await,
        Command::Runs(args) => commands::runs::run(args).await,
        Command::Trace(args) => commands::trace::run(args).await,
        Command::Errors(args) => commands::errors::run(args).await,
        Command::Results(args) => commands::results::run(args).await,
        Command::Codes(args) => commands::codes::run(&args),
        Command::Rehearse(args) => commands::rehearse::run(args).await,
    }
}
