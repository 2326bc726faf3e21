//! The `backstop` command: runs agents, reads their records, rehearses their failures.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 finished, 1 the
//! run failed, 2 usage or configuration, 3 stopped, 4 waiting for approval, 5 storage, 6 replay
//! diverged or log tampered.

mod advice;
mod agent_file;
mod args;
mod assemble;
mod behaviors;
mod commands;
mod conclude;
mod current;
mod exit;
mod folder;
mod ids;
mod interrupted;
mod limits;
mod names;
mod newest;
mod output;
mod page;
mod progress;
mod prompt;
mod proposal;
mod recorded;
mod report;
mod secrets;
mod several;
mod signals;
mod store;
mod unworked;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::{Args, Command, LogFormat, OutputArgs};
use crate::exit::CliError;

/// Variables with the filter of the own log; the first one with a value counts.
const LOG_VARIABLES: [&str; 2] = ["BACKSTOP_LOG", "RUST_LOG"];

fn main() -> ExitCode {
    // First of all: a process that was started to apply walls does only that.
    backstop_environment::enter();
    std::panic::set_hook(Box::new(|panic| {
        // The place of a panic is on a line of its own.
        output::alert(&format!("internal error: {}", panic.to_string().replacen('\n', " ", 1)));
    }));
    // Only a panic in the command itself gets here.
    let code = std::panic::catch_unwind(run).unwrap_or_else(|_| ExitCode::from(exit::FAILED));
    output::drain();
    code
}

fn run() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return report::refuse(error),
    };
    output::style::set(args.output.quiet, args.output.verbose > 0, args.output.color.into());
    start_log(&args.output);
    // For tests of agents: no request may leave the machine.
    if std::env::var_os("BACKSTOP_DENY_REAL_REQUESTS").is_some_and(|value| value != "0") {
        backstop_process::deny_real_requests();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report::error(&CliError::internal("starting", error)),
    };
    let result = runtime.block_on(async {
        signals::survive_the_file_limit();
        dispatch(args.command).await
    });
    // A tool that blocks a thread does not delay the end.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(error) => report::error(&error),
    }
}

/// Starts the own log. It is never coloured, because it contains text of others.
fn start_log(args: &OutputArgs) {
    let redactor = secrets::build_process_redactor();
    let log = tracing_subscriber::fmt()
        .with_env_filter(log_filter(args.verbose))
        .with_ansi(false)
        .with_writer(move || output::LogLines(redactor.clone()));
    match args.log_format {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Text => log.init(),
    }
}

/// Returns the filter of the own log: `off`, unless a variable or the command line sets another.
fn log_filter(verbose: u8) -> EnvFilter {
    for variable in LOG_VARIABLES {
        match std::env::var(variable) {
            Ok(filter) if !filter.is_empty() => match EnvFilter::try_new(filter) {
                Ok(filter) => return filter,
                Err(error) => {
                    output::alert(&format!("warning: {variable} is not used: {error}"));
                }
            },
            _ => {}
        }
    }
    match verbose {
        0 => "off".into(),
        // The names of all our crates begin with `backstop`, except `layer0`.
        1 => "warn,backstop=debug,layer0=debug".into(),
        _ => "debug".into(),
    }
}

async fn dispatch(command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Run(args) => commands::run::run(args).await,
        Command::Chat(args) => commands::chat::run(args).await,
        Command::Resume(args) => commands::resume::run(args).await,
        Command::Replay(args) => commands::replay::run(args).await,
        Command::Fork(args) => commands::fork::run(args).await,
        Command::Diff(args) => commands::diff::run(args).await,
        Command::Approvals(args) => commands::approvals::list(args).await,
        Command::Approve(args) => commands::approvals::approve(args).await,
        Command::Deny(args) => commands::approvals::deny(args).await,
        Command::Cancel(args) => commands::cancel::run(args).await,
        Command::Resolve(args) => commands::resolve::run(args).await,
        Command::Redact(args) => commands::redact::run(args).await,
        Command::Export(args) => commands::export::run(args).await,
        Command::Verify(args) => commands::verify::run(args).await,
        Command::Runs(args) => commands::runs::run(args).await,
        Command::Sessions(args) => commands::sessions::run(args).await,
        Command::Backup(args) => commands::backup::run(args).await,
        Command::Copy(args) => commands::copy::run(args).await,
        Command::Vacuum(args) => commands::vacuum::run(args).await,
        Command::Trace(args) => commands::trace::run(args).await,
        Command::Errors(args) => commands::errors::run(args).await,
        Command::Results(args) => commands::results::run(args).await,
        Command::State(args) => commands::state::run(args).await,
        Command::Watch(args) => commands::watch::run(args).await,
        Command::Tools(args) => commands::tools::run(args).await,
        Command::Mcp(args) => commands::mcp::run(args).await,
        Command::Worker(args) => commands::worker::run(args).await,
        Command::Enqueue(args) => commands::queue::enqueue(args).await,
        Command::Queue(args) => commands::queue::run(args).await,
        Command::Behaviors(args) => commands::behaviors::run(args).await,
        Command::Init(args) => commands::init::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Doctor(args) => commands::doctor::run(args).await,
        Command::Completions(args) => commands::completions::run(&args),
        Command::Man => commands::man::run(),
        Command::Costs(args) => commands::costs::run(args).await,
        Command::Codes(args) => commands::codes::run(&args),
        Command::Rehearse(args) => commands::rehearse::run(args).await,
    }
}
