//! Answers with a schema.

use std::fmt;
use std::sync::Arc;

use layer0::JsonText;

/// A check whether a final answer fits the definition's output schema; it returns the reason otherwise, in words that a
/// model can act on. The same text has to get the same result, here and in a replay.
#[derive(Clone)]
pub struct OutputCheck(Arc<Check>);

type Check = dyn Fn(&str) -> Result<(), String> + Send + Sync;

impl OutputCheck {
    /// Wraps a function as a check.
    pub fn new(check: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }
}

impl fmt::Debug for OutputCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OutputCheck")
    }
}

/// Always equal: the schema that it checks is that of the definition, which is compared.
impl PartialEq for OutputCheck {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl OutputCheck {
    /// Returns the reason that a final answer does not fit, if it does not.
    pub(crate) fn misfit(&self, text: &str) -> Option<String> {
        (self.0)(text).err()
    }
}

/// Removes the instruction about the form of the answer from the end of the instructions.
#[must_use]
pub fn without_instruction<'s>(system: &'s str, schema: &JsonText) -> &'s str {
    system.strip_suffix(&*instruction(schema)).map_or(system, str::trim_end)
}

/// Returns the instruction about the form of the answer.
pub(crate) fn instruction(schema: &JsonText) -> String {
    format!(
        "Your final answer must be nothing but JSON that fits this JSON Schema, without any text \
         around it:\n{}",
        schema.get()
    )
}
