//! The people who may decide about a call.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The people who may decide about a call; any person if no one is named.
///
/// A name is compared with the name given for the person who decides. This prevents mistakes, but proves no identity:
/// that is the task of the program that receives the decision.
///
/// ```
/// use layer0::Approvers;
///
/// let approvers: Approvers = ["ops", "lead"].into_iter().collect();
/// assert!(approvers.allow("ops") && !approvers.allow("Ops"));
/// assert!(Approvers::default().allow("intern"));
/// assert_eq!(approvers.to_string(), "ops, lead");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Approvers(Arc<[Arc<str>]>);

impl Approvers {
    /// Returns whether this person may decide.
    #[must_use]
    pub fn allow(&self, by: &str) -> bool {
        self.is_empty() || self.0.iter().any(|name| **name == *by)
    }

    /// Returns whether no one is named, so that any person may decide.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}

impl<N: Into<Arc<str>>> FromIterator<N> for Approvers {
    fn from_iter<I: IntoIterator<Item = N>>(names: I) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for Approvers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, name) in self.names().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}
