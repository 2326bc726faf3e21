//! Answers that have to fit a schema.

use std::fmt;
use std::sync::Arc;

use layer0::message::Message;
use serde_json::Value;

use crate::hooks::Ask;
use crate::io::FailureCause;
use crate::machine::Machine;
use crate::turn::Turn;

/// Says whether a final answer fits the definition's output schema, and if not why, in words a
/// model can act on. The same text has to get the same answer, here and on replay.
#[derive(Clone)]
pub struct OutputCheck(Arc<Check>);

type Check = dyn Fn(&str) -> Result<(), String> + Send + Sync;

impl OutputCheck {
    /// Makes a check of a function.
    pub fn new(check: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }
}

impl fmt::Debug for OutputCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OutputCheck")
    }
}

/// The schema it checks is the definition's, which is compared.
impl PartialEq for OutputCheck {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Machine {
    /// Checks final answers with this; without it every answer fits.
    #[must_use]
    pub fn checking_output(mut self, check: OutputCheck) -> Self {
        self.output_check = Some(check);
        self
    }

    /// Says why a final answer does not fit, if it does not.
    pub(crate) fn misfit(&self, text: &str) -> Option<String> {
        self.output_check.as_ref().and_then(|OutputCheck(check)| check(text).err())
    }

    /// Tells the model once what was wrong with its answer; then the run fails.
    pub(crate) fn answer_misfits(&mut self, cause: u64, turn: &Turn, why: &str) {
        if turn.asked_again() {
            return self.fail(cause, FailureCause::OutputInvalid(why.into()));
        }
        let correction = format!(
            "The answer does not fit the schema: {why}. Answer again with nothing but JSON that does."
        );
        self.transcript.push(Message::user(correction));
        let (call, attempts) = (turn.call, turn.attempts());
        self.ask(cause, Ask { call, attempts, pauses: 0, asked_again: true });
    }
}

/// Returns what the model is told about the form of its answer.
pub(crate) fn instruction(schema: &Value) -> String {
    format!(
        "Your final answer must be nothing but JSON that fits this JSON Schema, without any text \
         around it:\n{schema}"
    )
}
