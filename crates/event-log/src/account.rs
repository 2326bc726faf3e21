//! The scopes of spend accounts in the state store.

use layer0::state::Scope;

use crate::text_digest;

/// Returns the scope of a spend limit's account for one agent, label or session.
///
/// `kind` is `agent`, `label`, `session` or `global`. A name that is not valid in a scope is replaced by its digest.
///
/// ```
/// let scope = backstop_event_log::account_scope("session", "s-1");
/// assert_eq!(scope.map(|scope| scope.to_string()).as_deref(), Some("limit:session:s-1"));
/// ```
#[must_use]
pub fn account_scope(kind: &str, name: &str) -> Option<Scope> {
    let scope = Scope::custom("limit", &format!("{kind}:{name}"));
    let digest = || Scope::custom("limit", &format!("{kind}:sha256:{}", text_digest(name)));
    scope.or_else(|_| digest()).ok()
}
