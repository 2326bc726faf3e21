//! rig as a contestant: its agent with a model in this process, or with one that is asked over HTTP.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(feature = "v0_44")]
pub use {rig_agent_44 as rig_agent, rig_core_44 as rig_core};
#[cfg(feature = "v0_46")]
pub use {rig_agent_46 as rig_agent, rig_core_46 as rig_core};

use rig_agent::tool::{Tool, ToolContext};
use rig_agent::{Agent, AgentBuilder};
use rig_core::completion::options::{Mapping, OptionFields, OptionMap};
use rig_core::completion::{Accepts, CompletionRequest, ReplayTarget, Usage};
use rig_core::driver::{Exchange, Model, Opened, Opening, Transport};
use rig_core::error::{EncodeError, ProviderError};
use rig_core::message::Api;
use rig_core::operation::{Block, CallFragment, Completion, Finish};
use rig_core::wire::document::{Reassemble, Serves};
use rig_core::wire::{Decoder, Descriptor, Flow, Mode, Out, Wire, WireEvent};
use serde::Deserialize;
use serde_json::{Value, json};

#[global_allocator]
static COUNTED: contest::Counted = contest::Counted;

/// Who contends.
pub const CONTESTANT: &str =
    if cfg!(feature = "v0_46") { "rig-core 0.46.0" } else { "rig-core 0.44.0" };

/// What `add` is asked.
#[derive(Debug, Deserialize)]
pub struct Addends {
    a: i64,
    b: i64,
}

/// Adds two integers.
#[derive(Debug, Clone, Copy)]
pub struct Add;

impl Tool for Add {
    const NAME: &'static str = "add";
    type Args = Addends;
    type Output = i64;
    type Error = Infallible;

    fn description(&self) -> String {
        "Add two integers".to_owned()
    }

    fn parameters(&self) -> Value {
        let integer = json!({ "type": "integer" });
        json!({
            "type": "object", "properties": { "a": integer, "b": integer }, "required": ["a", "b"],
        })
    }

    async fn call(&self, _: &mut ToolContext, addends: Addends) -> Result<i64, Infallible> {
        Ok(addends.a + addends.b)
    }
}

/// Makes an agent whose model, in this process, calls `add` in so many turns and then answers; after
/// its answer it begins anew.
pub fn scripted(turns: usize) -> Agent {
    let script = Script { turns, asked: Arc::new(AtomicUsize::new(0)) };
    AgentBuilder::new(Model::new(InProcess, script)).preamble("You add.").tool(Add).build()
}

/// What the model says in a turn.
#[derive(Debug)]
pub enum Said {
    /// `add`, in this turn.
    Call(usize),
    /// The answer.
    Answer,
}

#[derive(Debug, Clone)]
struct Script {
    turns: usize,
    asked: Arc<AtomicUsize>,
}

impl Transport<InProcess> for Script {
    fn send(&self, _: CompletionRequest, _: Exchange) -> Opening<Said> {
        let turn = self.asked.fetch_add(1, Relaxed) % (self.turns + 1);
        let said = if turn < self.turns { Said::Call(turn) } else { Said::Answer };
        Opening::ready(Opened::new(futures_util::stream::iter([Ok(said)])))
    }
}

/// The wire of a model that is asked by a function call.
#[derive(Debug, Clone)]
pub struct InProcess;

impl Wire for InProcess {
    type Op = Completion;
    type Payload = CompletionRequest;
    type Frame = Said;
    #[cfg(feature = "v0_46")]
    type Event = Said;
    type Decoder<'id> = Reader;
    type Reassembler = Nothing;

    fn describe(&self) -> Descriptor<'_> {
        Descriptor::new("script").model(Some("script")).replay(self)
    }

    fn encode(
        &self,
        request: CompletionRequest,
        _: Mode,
    ) -> Result<CompletionRequest, EncodeError> {
        Ok(request)
    }

    fn decoder<'id>(&self) -> Self::Decoder<'id> {
        Reader
    }
}

impl ReplayTarget for InProcess {
    fn api(&self) -> Api {
        Api::from_static("script")
    }

    fn provider(&self) -> &str {
        "script"
    }

    fn model(&self) -> &str {
        "script"
    }

    fn accepts(&self, _: &str) -> Accepts {
        Accepts::ALL
    }

    fn map_options(&self, _: &CompletionRequest, _: OptionFields<'_>) -> OptionMap {
        OptionMap {
            reasoning: Mapping::Nothing,
            cache: Mapping::Nothing,
            #[cfg(feature = "v0_46")]
            cache_key: Mapping::Nothing,
            service_tier: Mapping::Nothing,
            verbosity: Mapping::Nothing,
            parallel_tool_calls: Mapping::Nothing,
            top_p: Mapping::Nothing,
            seed: Mapping::Nothing,
            stop: Mapping::Nothing,
        }
    }

    fn states_finish_reason(&self) -> bool {
        false
    }
}

/// Reads what the script says.
#[derive(Debug)]
pub struct Reader;

impl<'id> Decoder<'id, Completion, Said> for Reader {
    type Event = Said;

    fn classify(&self, said: Said) -> WireEvent<Said> {
        WireEvent::Known(said)
    }

    fn decode(&mut self, said: Said, mut out: Out<'id, Completion>) -> Result<Flow, ProviderError> {
        match said {
            Said::Call(turn) => {
                let place = out.fresh_index();
                let id = format!("call_{turn}");
                let call =
                    CallFragment { id: Some(&id), name: Some("add"), ..CallFragment::default() };
                out.fragment(Some(place), call)?;
                out.announce(place, json!({ "a": turn, "b": 1 }))?;
                out.finish(place)?;
            }
            Said::Answer => {
                out.run(Block::Text, "done")?;
                out.end_run()?;
            }
        }
        let usage = Usage::new().input_tokens(10).output_tokens(5);
        Ok(out.end(Finish { usage, ..Finish::default() }))
    }
}

/// Keeps nothing of what was said.
#[derive(Debug, Default)]
pub struct Nothing;

impl Reassemble<Said> for Nothing {
    fn absorb(&mut self, _: &Said) {}

    fn finish(self) -> Value {
        Value::Null
    }
}

impl Serves<Completion> for Nothing {}
