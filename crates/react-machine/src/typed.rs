//! Answers that have to fit a schema.

use std::fmt;
use std::sync::Arc;

use layer0::JsonText;

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

impl OutputCheck {
    /// Says why a final answer does not fit, if it does not.
    pub(crate) fn misfit(&self, text: &str) -> Option<String> {
        (self.0)(text).err()
    }
}

/// Takes what the model is told about the form of its answer off the end of its instructions.
#[must_use]
pub fn without_instruction<'s>(system: &'s str, schema: &JsonText) -> &'s str {
    system.strip_suffix(&*instruction(schema)).map_or(system, str::trim_end)
}

/// Returns what the model is told about the form of its answer.
pub(crate) fn instruction(schema: &JsonText) -> String {
    format!(
        "Your final answer must be nothing but JSON that fits this JSON Schema, without any text \
         around it:\n{}",
        schema.get()
    )
}
