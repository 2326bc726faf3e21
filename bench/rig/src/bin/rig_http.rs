//! Runs over HTTP, several at a time.
//!
//! `rig_http URL RUNS AT_ONCE`

use contestant_rig::rig_agent::AgentBuilder;
use contestant_rig::rig_core::providers::openai::{OpenAIConfig, Route};
use contestant_rig::{Add, CONTESTANT};
use futures_util::{StreamExt, stream};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("which URL?")?;
    let runs: usize = arguments.next().ok_or("how many runs?")?.parse()?;
    let at_once: usize = arguments.next().ok_or("how many at once?")?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = OpenAIConfig::new("sk-local").with_base_url(&url).with_route(Route::Chat);
    let model = runtime.block_on(async { config.client().completion("m") });
    let agent = AgentBuilder::new(model).preamble("You add.").tool(Add).build();
    contest::serve(CONTESTANT, || {
        runtime.block_on(async {
            let asked = stream::iter(0..runs).map(|_| async {
                let run = agent.prompt("hello").max_turns(9).await;
                assert_eq!(run.expect("it answers").output(), "done");
            });
            asked.buffer_unordered(at_once).collect::<Vec<()>>().await;
        });
    })?;
    Ok(())
}
