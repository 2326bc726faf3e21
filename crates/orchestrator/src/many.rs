//! Several concurrent dispatches.

use std::sync::Arc;

use layer0::Timestamp;
use layer0::id::RunId;
use layer0::operator::{Context, Signals};

use crate::ids::new_run_id;

/// Returns the contexts of several dispatches, each with its own run and signals. Roots of one session know each
/// other's runs.
pub(crate) fn many(context: &Context, count: usize, now: Timestamp) -> Vec<Context> {
    let mut contexts: Vec<Context> = (0..count).map(|_| one_of_many(context)).collect();
    if context.session.is_some() && context.parent.is_none() {
        let together: Arc<[RunId]> = contexts.iter().map(|_| new_run_id(now)).collect();
        for (context, run) in contexts.iter_mut().zip(&*together) {
            (context.run, context.together) = (Some(run.clone()), Arc::clone(&together));
        }
    }
    contexts
}

/// Returns the context of one of several dispatches, without a run id.
pub(crate) fn one_of_many(context: &Context) -> Context {
    let mut context = context.clone();
    (context.run, context.signals) = (None, Signals::default());
    context
}
