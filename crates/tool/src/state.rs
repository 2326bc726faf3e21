use std::any::{Any, type_name};
use std::ops::Deref;
use std::sync::Arc;

use layer0::error::BoxError;

use crate::{ToolContext, ToolError};

/// The state that the application gave the agent, as a parameter of a tool function. Clones share it.
///
/// An agent with a tool that takes a state of another type than its own cannot be built.
///
/// ```
/// use backstop_tool::{State, ToolError, tool};
///
/// struct Shop {
///     stock: i64,
/// }
///
/// /// Say how many are in stock.
/// #[tool(idempotent)]
/// async fn stock(shop: State<Shop>) -> Result<i64, ToolError> {
///     Ok(shop.stock)
/// }
/// # use backstop_tool::Tool;
/// # assert!(stock.state_type().unwrap().name().ends_with("Shop"));
/// ```
#[derive(Debug)]
pub struct State<T>(Arc<T>);

impl<T: Any + Send + Sync> State<T> {
    /// Returns the state in the context of a call.
    ///
    /// # Errors
    ///
    /// [`ToolError::Other`] if there is none, or it has another type; an agent never calls a tool in that way.
    pub fn from_context(context: &ToolContext) -> Result<Self, ToolError> {
        let given = context.app_state.clone();
        let state = given.and_then(|state| state.downcast().ok());
        state.map(Self).ok_or_else(|| {
            let why = format!("the agent has no state of type `{}`", type_name::<T>());
            ToolError::Other(BoxError::from(why))
        })
    }
}

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
