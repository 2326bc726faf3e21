//! Requests and notifications of a server.
#![expect(deprecated, reason = "servers of earlier revisions ask for roots")]

use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, ErrorData, FormElicitationCapability, Implementation, ListRootsResult,
    ProgressNotificationParam, ProtocolVersion, RootsCapabilities,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext, RoleClient};
use tokio::sync::Notify;

use super::wire::Wire;
use crate::input::{self, Elicited};
use crate::progress::ProgressRegistry;

/// Handler of a server's requests. Sampling is not supported.
pub(crate) struct McpClientHandler {
    pub(super) roots: Vec<String>,
    pub(super) progressing: Arc<ProgressRegistry>,
    pub(super) wire: Arc<Wire>,
    /// Revision for `initialize`.
    pub(super) revision: ProtocolVersion,
    /// Notified when the server reports that its tools have changed.
    pub(super) changed: Arc<Notify>,
}

impl ClientHandler for McpClientHandler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        let form = FormElicitationCapability::default();
        capabilities.elicitation = Some(ElicitationCapability::new().with_form(form));
        if !self.roots.is_empty() {
            capabilities.roots = Some(RootsCapabilities::default());
        }
        let this = Implementation::new("backstop", env!("CARGO_PKG_VERSION"));
        let mut config = ClientConfig::new(capabilities, this);
        config.protocol_version = self.revision.clone();
        config
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Ok(input::list_roots(&self.roots))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let of = match context.extensions.get::<InboundStreamOrigin>() {
            Some(InboundStreamOrigin::OutboundRequest(id)) => Some(id),
            _ => None,
        };
        // A request without a call may belong to a cancelled call of another run.
        let is_ambiguous = of.is_none() && self.wire.has_given_up();
        let call = if is_ambiguous { None } else { self.progressing.find_call(of).await };
        let elicited = match call {
            Some(call) => input::elicit(&call, request).await,
            None => Elicited::Declined,
        };
        Ok(match elicited {
            Elicited::Given(data) => {
                ElicitResult::new(ElicitationAction::Accept).with_content(data.value())
            }
            Elicited::Declined => ElicitResult::new(ElicitationAction::Decline),
        })
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
