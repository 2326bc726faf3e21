//! Denials of calls, and the binding of approvals to arguments.

use std::collections::BTreeMap;
use std::sync::Arc;

use layer0::JsonText;
use layer0::id::{ApprovalId, CallId, RunId};
use sha2::{Digest, Sha256};

/// The calls that people denied in a run, by tool and hash of the arguments.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Denials(BTreeMap<(Arc<str>, Arc<str>), Denial>);

/// The denial of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    /// Name of the person; empty if there was no decision in time.
    pub by: Arc<str>,
    /// Reason that the person gave.
    pub reason: Arc<str>,
}

impl Denial {
    /// Returns the text for the model.
    pub(crate) fn text(&self) -> String {
        layer0::text::denial(&self.by, &self.reason)
    }
}

impl Denials {
    /// Stores the denial of a call, by its arguments as the tool takes them.
    pub(crate) fn insert(&mut self, tool: Arc<str>, taken: &JsonText, denial: Denial) {
        self.0.insert((tool, arguments_hash(taken)), denial);
    }

    /// Returns the denial of this very call, with its arguments as the tool takes them.
    pub(crate) fn find(&self, tool: &str, taken: impl FnOnce() -> JsonText) -> Option<&Denial> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(tool.into(), arguments_hash(&taken())))
    }
}

/// Returns an approval id that is unique across runs: `apr_` and 16 hex digits of SHA-256.
pub(crate) fn approval_id(run: &RunId, seq: u64, call_id: &CallId) -> ApprovalId {
    let digest = Sha256::new_with_prefix(run.as_str())
        .chain_update(seq.to_be_bytes())
        .chain_update(call_id.as_str())
        .finalize();
    ApprovalId::new(format!("apr_{}", hex(&digest[..8])))
}

/// Returns the hash that binds an approval: SHA-256, in hex, of the arguments as compact JSON with sorted keys.
pub(crate) fn arguments_hash(arguments: &JsonText) -> Arc<str> {
    hex(&Sha256::digest(arguments.get().as_bytes())).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::io::Approval;

    /// Spec: A1. Computed with `sha256sum`.
    #[test]
    fn changed_approval_is_bound_to_its_arguments() {
        let (id, call) = (ApprovalId::from("apr_1"), CallId::from("c0"));
        let mut approval = Approval::new(id, call, "look".into(), json!({}).into());
        let empty = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(&*approval.arguments_hash, empty);
        approval.change(json!({ "index": 9 }).into());
        let changed = "1c25b41c8eb8fdfc50e3b7683cd26a0182705893c410acfdb761ce703e09b763";
        assert_eq!(&*approval.arguments_hash, changed);
        assert_eq!(approval.call().arguments, json!({ "index": 9 }));
    }
}
