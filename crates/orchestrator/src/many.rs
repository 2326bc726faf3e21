//! Several dispatches at once.

use layer0::operator::{Context, Signals};

/// Makes the context of one of several dispatches, with a run and signals of its own.
pub(crate) fn one_of_many(context: &Context) -> Context {
    let mut context = context.clone();
    (context.run, context.signals) = (None, Signals::default());
    context
}
