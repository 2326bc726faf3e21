//! `backstop chat`

mod conversation;
mod slash;
mod turn;

use std::process::ExitCode;

use self::conversation::ChatSession;
use self::slash::{Slash, Then};
use crate::agent_file;
use crate::args::ChatArgs;
use crate::assemble::{self, Servers};
use crate::behaviors::{Behaviors, read_behaviors};
use crate::commands::run::{equip_agent, prepare};
use crate::exit::{self, CliError};
use crate::output::{self, LineInput, SharedLineEditor, note};
use crate::report;
use crate::signals::ChatTurns;
use crate::store;

pub(crate) async fn run(args: ChatArgs) -> Result<ExitCode, CliError> {
    let mut file = agent_file::read(&args.agent)?;
    assemble::fetch_credentials(&mut file, &args.agent).await?;
    let servers = Servers::connect(&file, &args.agent).await?;
    servers.tell_left_out();
    let chosen = prepare(&file, &args.agent, &servers, &args.store)
        .map_err(|error| agent_file::locate_error(error, &args.agent))?;
    // Checked before a store is created for them.
    let behaviors = read_behaviors(&file, &args.agent)?;
    let database = store::open(&chosen, &file.store).await?;
    let agent = servers.give(assemble::agent(&file, &args.agent, Some(&database))?);
    let agent = assemble::build(equip_agent(agent, &database), &args.agent)?;
    let behaviors = Behaviors::serve(behaviors, &database).await?;
    let turns = ChatTurns::start();
    // The store's URL is in the agent file, so that no flag is needed.
    let is_of_file = args.store.store.is_none() && file.store.url.is_some();
    let store_flag = if is_of_file { String::new() } else { chosen.flag() };
    let mut conversation = ChatSession {
        agent,
        budget: file.agent.budget(),
        database: database.clone(),
        is_kept: chosen.is_kept(),
        store_flag,
        path: args.agent,
        session: args.session.map(Into::into),
        taken: Vec::new(),
        said: None,
        turns,
    };
    let talked = talk(&mut conversation).await;
    servers.close().await;
    behaviors.end(&conversation.taken).await;
    database.close().await;
    talked
}

/// Takes turns until the person leaves the chat.
async fn talk(conversation: &mut ChatSession) -> Result<ExitCode, CliError> {
    let lines = SharedLineEditor::new(&conversation.earlier().await?)?;
    note("/help lists what can be said besides; Ctrl-C stops a turn, Ctrl-D leaves");
    conversation.greet().await?;
    conversation.go_on().await?;
    let mut begun = String::new();
    loop {
        if conversation.turns.has_ended() {
            return Ok(exit::of_stop());
        }
        let line = match lines.read(std::mem::take(&mut begun)).await? {
            LineInput::End => break,
            LineInput::Interrupted => {
                note("(Ctrl-D or /quit leaves)");
                continue;
            }
            LineInput::Text(line) => line,
        };
        let done = match Slash::parse(&line) {
            Some(slash) => slash.perform(conversation).await,
            None if line.trim().is_empty() => continue,
            // Text that begins with a slash is typed with two.
            None => {
                let text = line.strip_prefix('/').filter(|rest| rest.starts_with('/'));
                conversation.take_turn(text.unwrap_or(&line)).await.map(|()| Then::Read)
            }
        };
        match done {
            Ok(Then::Leave) => break,
            Ok(Then::Read) => {}
            Ok(Then::ReadFrom(text)) => begun = text,
            // A failure is printed; the conversation continues.
            Err(error) => {
                report::error(&error);
            }
        }
    }
    conversation.farewell();
    output::drain();
    Ok(ExitCode::SUCCESS)
}
