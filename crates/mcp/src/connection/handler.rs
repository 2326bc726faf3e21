//! What a server may ask of its client, and tell it.
#![expect(deprecated, reason = "servers of earlier revisions ask for roots")]

use std::sync::Arc;

use backstop_tool::Given;
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, ErrorData, FormElicitationCapability, Implementation, ListRootsResult,
    ProgressNotificationParam, Root, RootsCapabilities,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext, RoleClient};
use tokio::sync::Notify;

use crate::progress::{Progressing, Watched};

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
        let form = FormElicitationCapability::default();
        capabilities.elicitation = Some(ElicitationCapability::new().with_form(form));
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
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let of = match context.extensions.get::<InboundStreamOrigin>() {
            Some(InboundStreamOrigin::OutboundRequest(id)) => Some(id),
            _ => None,
        };
        let call = self.progressing.call_of(of).await;
        let decline = ElicitResult::new(ElicitationAction::Decline);
        Ok(match call {
            Some(call) => ask(&call, request).await.unwrap_or(decline),
            None => decline,
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

/// Asks a person for the data that a server wants for a call. `None` where there is no person, and for what is to be
/// given elsewhere, at a URL.
async fn ask(call: &Watched, request: ElicitRequestParams) -> Option<ElicitResult> {
    let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request
    else {
        return None;
    };
    let people = call.people.as_ref()?;
    let schema = serde_json::to_value(&requested_schema).ok()?;
    let message = format!("{} asks: {message}", call.template.server);
    // A person takes longer than a server.
    let given = call.patience.while_waiting(people.ask(&message, schema.into())).await;
    match given {
        Ok(Given::Data(data)) => {
            Some(ElicitResult::new(ElicitationAction::Accept).with_content(data.value()))
        }
        Ok(Given::NobodyThere) | Err(_) => None,
        Ok(_) => Some(ElicitResult::new(ElicitationAction::Decline)),
    }
}
