use std::any::{Any, TypeId, type_name};
use std::fmt;

/// The type of the state that a tool takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StateType {
    id: TypeId,
    name: &'static str,
}

impl StateType {
    /// Returns the type `T`.
    #[must_use]
    pub fn for_type<T: Any>() -> Self {
        Self { id: TypeId::of::<T>(), name: type_name::<T>() }
    }

    /// Returns the type's path, such as `shop::Stock`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether a state has this type.
    #[must_use]
    pub fn fits(&self, state: &(dyn Any + Send + Sync)) -> bool {
        state.type_id() == self.id
    }
}

impl fmt::Debug for StateType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StateType").field(&self.name).finish()
    }
}
