//! Servers that refuse the requests that the real endpoints are reported to refuse.
//!
//! Each [`Rule`] is a row: the refused request, the endpoint's own message, and the document or report that is its
//! source. The rows do not depend on Backstop's adapters, and requests are read by another library than the one that
//! writes them, so that a mistake of an adapter is not repeated by its judge.
//!
//! [`StrictServer`] answers from a script as long as requests keep the rules. It stores its answers, for endpoints that
//! want parts of them back: signatures, reasoning, ids of calls.
//!
//! ```
//! use backstop_testkit::strict::{Dialect, Said, check};
//!
//! let body = br#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[]}]}"#;
//! let refused = check(Dialect::Anthropic, &Said::default(), "/v1/messages", body).unwrap_err();
//! assert_eq!(refused.rule, "anthropic.content_given");
//! ```

mod dialect;
mod dress;
mod json;
mod look;
mod rule;
mod rules;
mod said;
mod schema;
mod server;

use json::Node;
use rule::Asked;

pub use dialect::Dialect;
pub use rule::{Refusal, Rule};
pub use said::Said;
pub use server::StrictServer;

/// Judges a request.
///
/// # Errors
///
/// The refusal by the first rule that the request breaks.
pub fn check(dialect: Dialect, said: &Said, path: &str, body: &[u8]) -> Result<(), Refusal> {
    if dialect.is_streamed(path, body).is_none() {
        return Err(rules::PATH.refusal(dialect, &[path.to_owned()]));
    }
    check_body(dialect, said, body)
}

/// Judges a body, whatever its path.
pub(crate) fn check_body(dialect: Dialect, said: &Said, body: &[u8]) -> Result<(), Refusal> {
    let read = match json::read(body) {
        Ok(read) => read,
        Err(why) => return Err(rules::JSON.refusal(dialect, &[why])),
    };
    let asked = Asked { dialect, body: Node::new(&read), said };
    for rule in rules(dialect) {
        if let Some(parts) = (rule.find)(asked) {
            return Err(rule.refusal(dialect, &parts));
        }
    }
    Ok(())
}

/// Returns the rules of an endpoint, in the order in which they are applied.
pub fn rules(dialect: Dialect) -> impl Iterator<Item = &'static Rule> {
    rules::TABLES.into_iter().flatten().filter(move |rule| rule.dialects.contains(&dialect))
}

#[cfg(test)]
mod tests;
