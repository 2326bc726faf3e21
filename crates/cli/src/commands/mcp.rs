//! `backstop mcp`

use std::process::ExitCode;

use crate::store::AnyDatabase;
use backstop_config::AgentFile;
use backstop_mcp_server::{Offer, ServeError, Server};
use backstop_orchestrator::LocalOrchestrator;
use backstop_react::Agent;
use futures_util::future::join_all;
use layer0::Operator;
use layer0::failure::Failure;
use tokio::net::TcpListener;

use crate::args::McpArgs;
use crate::assemble::Servers;
use crate::behaviors::{Behaviors, read_behaviors};
use crate::exit::CliError;
use crate::output::note;
use crate::several::{self, Files};
use crate::{assemble, signals, store};

/// Variable that holds the token.
const TOKEN: &str = "BACKSTOP_TOKEN";
/// Largest size of a token file, in bytes.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

pub(crate) async fn run(args: McpArgs) -> Result<ExitCode, CliError> {
    let mut files = several::read(&args.agents)?;
    several::check_names(&files)?;
    let chosen = several::choose_kept(&args.store, &files)?;
    let token = token(&args)?;
    if let Some(address) = args.listen {
        Server::check_address(address, token.is_some()).map_err(not_served)?;
    }
    for (path, file) in &mut files {
        assemble::fetch_credentials(file, path).await?;
    }
    assemble::hold(token.clone());
    assemble::hold_all(&files);
    let table = several::store_table(&files)?;
    let mut servers = Vec::new();
    for (path, file) in &files {
        let connected = Servers::connect(file, path).await?;
        connected.tell_left_out();
        assemble::build(connected.give(assemble::agent(file, path, None)?), path)?;
        servers.push(connected);
    }
    let listener = match args.listen {
        Some(address) => Some(TcpListener::bind(address).await.map_err(|error| {
            CliError::usage(format!("--listen {address}: {error}"))
                .with_hint("choose another address; port 0 takes a free one")
        })?),
        None => None,
    };
    let database = store::open(&chosen, &table).await?;
    let served = serve(&args, &files, &servers, &database, listener, token).await;
    join_all(servers.iter().map(Servers::close)).await;
    database.close().await;
    served
}

async fn serve(
    args: &McpArgs,
    files: &Files<'_>,
    servers: &[Servers],
    database: &AnyDatabase,
    listener: Option<TcpListener>,
    token: Option<String>,
) -> Result<ExitCode, CliError> {
    let log = database.log();
    let mut orchestrator = LocalOrchestrator::builder().shared_log(log);
    let (mut offers, mut behaviors) = (Vec::new(), Vec::new());
    let redactor = several::redactor(files);
    for ((path, file), servers) in files.iter().zip(servers) {
        // There is no terminal here: approvals wait for `backstop approve`.
        let agent = assemble::agent(file, path, Some(database))?.store(database);
        let agent = servers.give(agent);
        let agent = assemble::build(agent, path)?;
        offers.push(offer(&agent, file));
        orchestrator = orchestrator.operator(agent);
        behaviors.push(Behaviors::serve(read_behaviors(file, path)?, database).await?);
    }
    let orchestrator = orchestrator.build().map_err(CliError::usage)?;
    let server = offers.into_iter().fold(Server::new(orchestrator), Server::offer);
    let server = server
        .answer_within(args.answer_within())
        .start_keys(database.start_keys())
        .allow_origins(args.allow_origins.iter().cloned())
        .redactor(redactor);
    // The second signal ends the process at once.
    let stop = signals::interrupt();
    let served = match listener {
        Some(listener) => {
            if let Ok(address) = listener.local_addr() {
                note(&format!("listening at http://{address}/mcp; Ctrl-C stops"));
            }
            server.serve_http(listener, token, stop).await
        }
        None => server.serve_streams(tokio::io::stdin(), tokio::io::stdout(), stop).await,
    };
    for behaviors in behaviors {
        behaviors.end_of_all().await;
    }
    served.map(|()| ExitCode::SUCCESS).map_err(not_served)
}

/// Returns the offer of an agent, with its description. Callers do not see its instructions.
fn offer(agent: &Agent, file: &AgentFile) -> Offer {
    let name = Operator::name(agent);
    let description = file.agent.description.as_deref().map(str::trim);
    let description = match description.filter(|description| !description.is_empty()) {
        Some(description) => description.to_owned(),
        None => format!("Runs the agent `{name}` on `input`."),
    };
    let offer = Offer::new(name, description);
    match Operator::input_schema(agent) {
        Some(schema) => offer.input_schema(schema.clone()),
        None => offer,
    }
}

/// Reads the token that clients must send.
fn token(args: &McpArgs) -> Result<Option<String>, CliError> {
    if args.listen.is_none() {
        return Ok(None);
    }
    let (token, place) = match &args.token_file {
        Some(path) => {
            let bytes = backstop_config::read_bytes(path, MAX_TOKEN_BYTES)?;
            let text = String::from_utf8(bytes)
                .map_err(|_| CliError::usage(format!("{}: is no text", path.display())))?;
            (text, path.display().to_string())
        }
        None => match std::env::var(TOKEN) {
            Ok(token) => (token, TOKEN.to_owned()),
            Err(_) => return Ok(None),
        },
    };
    match token.trim() {
        "" => Err(CliError::usage(format!("{place} holds no token"))
            .with_hint("put one into it, such as the output of `openssl rand -hex 32`")),
        token => {
            assemble::hold([token.to_owned()]);
            Ok(Some(token.to_owned()))
        }
    }
}

fn not_served(error: ServeError) -> CliError {
    let hint = Failure::hint(&error).map(|hint| hint.into_owned());
    let refused = CliError::usage(layer0::failure::Chain(&error).to_string());
    match (error, hint) {
        (ServeError::NoToken(_), _) => {
            refused.with_hint(format!("set {TOKEN} or give --token-file, or listen on 127.0.0.1"))
        }
        (_, Some(hint)) => refused.with_hint(hint),
        (_, None) => refused,
    }
}
