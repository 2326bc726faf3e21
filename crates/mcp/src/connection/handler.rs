//! What a server may ask of its client, and tell it.
#![expect(deprecated, reason = "servers of earlier revisions ask for roots")]

use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ErrorData, Implementation, ListRootsResult, ProgressNotificationParam, Root, RootsCapabilities,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use tokio::sync::Notify;

use crate::progress::Progressing;

/// Answers the requests of a server. Sampling is none of what this client can.
pub(crate) struct Handler {
    pub(super) roots: Vec<String>,
    pub(super) progressing: Arc<Progressing>,
    /// Is told when the server says that its tools have changed.
    pub(super) changed: Arc<Notify>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if !self.roots.is_empty() {
            capabilities.roots = Some(RootsCapabilities::default());
        }
        let this = Implementation::new("backstop", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities, this)
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(self.roots.iter().map(Root::new).collect()))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ask(&request))
    }

    async fn on_progress(
        &self,
        said: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progressing.take(said).await;
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}

/// Answers a server that asks a person for data: there is nobody to ask yet. That is why the capability is not
/// offered either; some servers ask all the same.
fn ask(_: &ElicitRequestParams) -> ElicitResult {
    ElicitResult::new(ElicitationAction::Decline)
}
