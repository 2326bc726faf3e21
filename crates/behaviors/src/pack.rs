//! Behaviours of a pack.

use std::any::Any;
use std::sync::Arc;

use backstop_react::{Pack, PackPart};

use crate::behavior::Behavior;

/// A behaviour as a part of a pack.
struct BehaviorPart(Arc<dyn Behavior>);

impl PackPart for BehaviorPart {
    fn name(&self) -> &str {
        self.0.name()
    }
}

/// Extension of [`Pack`] with behaviours, for the host that loads the pack.
///
/// ```
/// use backstop_behaviors::{PackBehaviors, behavior};
/// use backstop_react::Pack;
///
/// # fn main() -> Result<(), backstop_event_log::PatternError> {
/// let told = behavior("tell ops", "run.failed".parse()?, |_, _| async { Ok(()) });
/// let pack = Pack::new("ops").version("1.0.0").grant("run:reopen").behavior(told);
/// assert_eq!(pack.parts().len(), 1);
/// # Ok(())
/// # }
/// ```
pub trait PackBehaviors: Sized {
    /// Adds a behaviour with the grants of the pack.
    #[must_use]
    fn behavior(self, behavior: impl Behavior + 'static) -> Self;
}

impl PackBehaviors for Pack {
    fn behavior(self, behavior: impl Behavior + 'static) -> Self {
        self.part(Arc::new(BehaviorPart(Arc::new(behavior))))
    }
}

/// Returns the behaviours of a pack.
pub(crate) fn collect_behaviors(pack: &Pack) -> Vec<Arc<dyn Behavior>> {
    let parts = pack.parts().iter();
    let behaviors = parts.filter_map(|part| {
        let part: Arc<dyn Any + Send + Sync> = Arc::clone(part) as _;
        part.downcast::<BehaviorPart>().ok().map(|part| Arc::clone(&part.0))
    });
    behaviors.collect()
}
