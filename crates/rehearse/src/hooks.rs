//! Scripted hooks.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_config::{HookAction, ScriptedHook};
use backstop_react::{Gate, GateVerdict, HookContext, HookPoint, Moment};
use layer0::error::BoxError;

use crate::marks::ReachMark;

/// A gate with scripted actions.
pub(crate) struct ScriptedGate {
    hook: ScriptedHook,
    points: [HookPoint; 1],
    mark: ReachMark,
    clock: Arc<dyn Clock>,
}

impl ScriptedGate {
    pub(crate) fn new(hook: ScriptedHook, mark: ReachMark, clock: Arc<dyn Clock>) -> Self {
        Self { points: [hook.point], hook, mark, clock }
    }
}

#[async_trait]
impl Gate for ScriptedGate {
    fn name(&self) -> &str {
        &self.hook.name
    }

    fn points(&self) -> &[HookPoint] {
        &self.points
    }

    fn fail_open(&self) -> bool {
        self.hook.fail_open
    }

    async fn judge(&self, moment: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        if let (Some(only), Some(tool)) = (&self.hook.tool, moment.tool())
            && only != tool
        {
            return Ok(GateVerdict::Continue);
        }
        self.mark.reach();
        match &self.hook.action {
            HookAction::Abort(reason) => Ok(GateVerdict::Abort(reason.clone())),
            HookAction::Error(text) => Err(text.as_str().into()),
            HookAction::HangMs(ms) => {
                self.clock.sleep(Duration::from_millis(*ms)).await;
                Ok(GateVerdict::Continue)
            }
            HookAction::Panic(text) => {
                // Unwinds without the panic hook, which would print to the terminal.
                std::panic::resume_unwind(Box::new(text.clone()))
            }
            HookAction::ReplaceArguments(arguments) => {
                Ok(GateVerdict::ReplaceArguments(arguments.clone().into()))
            }
            _ => Ok(GateVerdict::Continue),
        }
    }
}
