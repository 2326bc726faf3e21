//! Requests and their outcomes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use backstop_clock::Clock;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ListToolsRequest,
    PaginatedRequestParams, PingRequest, RequestMetaObject, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use serde_json::value::RawValue;

use super::said::CallPayload;
use super::wire::{RequestState, Wire};
use super::{Connection, transport_fault};
use crate::fault::McpFault;
use crate::progress::{ProgressRegistry, WatchedCall};

/// A request without a result.
#[derive(Debug)]
pub(crate) struct FailedRequest {
    pub(crate) fault: McpFault,
    /// Whether the server may have received the request.
    pub(crate) left: bool,
}

/// A page of the list of tools.
pub(crate) struct Page {
    /// The page as the server wrote it.
    pub(crate) written: Box<RawValue>,
    /// The names of the tools that `rmcp` accepts, if it can read the page; other tools ask for headers that cannot be
    /// sent.
    pub(crate) accepted: Option<BTreeSet<String>>,
}

impl Connection {
    /// Calls a tool, and returns the result as the server wrote it.
    ///
    /// Dropping the future notifies the server that the request was cancelled.
    pub(crate) async fn call(
        &self,
        params: CallToolRequestParams,
        said: CallPayload,
        meta: RequestMetaObject,
        watched: Arc<WatchedCall>,
    ) -> Result<Box<RawValue>, FailedRequest> {
        let patience = Arc::clone(&watched.patience);
        let mut request = CallToolRequest::new(params);
        request.extensions.insert(said);
        let request = ClientRequest::CallToolRequest(request);
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let (_, sent) = self.request(request, options, Some(watched), patience.over()).await?;
        sent.result.ok_or_else(|| unreadable("the answer is no result of a call"))
    }

    /// Requests a page of the list of tools.
    pub(crate) async fn list(
        &self,
        cursor: Option<String>,
        over: impl Future<Output = Duration>,
    ) -> Result<Page, McpFault> {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let request = ListToolsRequest::with_param(params);
        let request = ClientRequest::ListToolsRequest(request);
        let options = PeerRequestOptions::no_options();
        let page = self.request(request, options, None, over).await;
        let (read, sent) = page.map_err(|failed| failed.fault)?;
        let unreadable = || McpFault::Unreadable("the answer is no list of tools".to_owned());
        let accepted = match read {
            ServerResult::ListToolsResult(page) => {
                Some(page.tools.into_iter().map(|tool| tool.name.into_owned()).collect())
            }
            // A tool that `rmcp` cannot read.
            ServerResult::CustomResult(_) => None,
            _ => return Err(unreadable()),
        };
        Ok(Page { written: sent.result.ok_or_else(unreadable)?, accepted })
    }

    pub(super) async fn ping(
        &self,
        clock: &Arc<dyn Clock>,
        timeout: Duration,
    ) -> Result<(), McpFault> {
        let request = ClientRequest::PingRequest(PingRequest::default());
        let over = async {
            clock.sleep(timeout).await;
            timeout
        };
        let answer = self.request(request, PeerRequestOptions::no_options(), None, over).await;
        answer.map(drop).map_err(|failed| failed.fault)
    }

    async fn request(
        &self,
        request: ClientRequest,
        options: PeerRequestOptions,
        watched: Option<Arc<WatchedCall>>,
        over: impl Future<Output = Duration>,
    ) -> Result<(ServerResult, RequestState), FailedRequest> {
        let sent = self.service.send_cancellable_request(request, options);
        let key =
            |handle: &RequestHandle<RoleClient>| (handle.progress_token.clone(), handle.id.clone());
        let sent = self.progressing.watch(watched, key, sent).await;
        let handle =
            sent.map_err(|_| FailedRequest { fault: self.closed_fault(false), left: false })?;
        let mut waiting = PendingRequest {
            handle: Some(handle),
            wire: Arc::clone(&self.wire),
            progressing: Arc::clone(&self.progressing),
        };
        let answer = tokio::select! {
            biased;
            answer = waiting.answer() => answer,
            after = over => {
                // The caller receives the outcome before the server is notified.
                self.is_suspect.store(true, Ordering::Relaxed);
                let left = waiting.wire.has_left(waiting.id().as_ref());
                return Err(FailedRequest { fault: McpFault::TimedOut(after), left });
            }
        };
        let mut sent = waiting.end();
        match answer {
            Ok(answer) => Ok((answer, sent)),
            Err(error) => {
                let left = sent.left;
                let status = sent.status;
                let fault = sent
                    .fault
                    .take()
                    .unwrap_or_else(|| self.convert_service_error(error, left, status));
                Err(FailedRequest { fault, left })
            }
        }
    }

    /// Converts an error of `rmcp`.
    fn convert_service_error(
        &self,
        error: ServiceError,
        left: bool,
        status: Option<u16>,
    ) -> McpFault {
        match error {
            ServiceError::McpError(error) => {
                let message = error.message.into_owned();
                McpFault::Protocol { code: error.code.0, message, status }
            }
            ServiceError::TransportSend(error) => {
                transport_fault(error.error.as_ref()).unwrap_or_else(|| self.closed_fault(left))
            }
            ServiceError::TransportClosed => self.closed_fault(left),
            _ => McpFault::Unreadable("the answer is not what was asked for".to_owned()),
        }
    }

    fn closed_fault(&self, left: bool) -> McpFault {
        let why = self.wire.close_reason().unwrap_or_else(|| "cut its answer".to_owned());
        if left { McpFault::Lost(why) } else { McpFault::NotSent(why) }
    }
}

fn unreadable(why: &str) -> FailedRequest {
    FailedRequest { fault: McpFault::Unreadable(why.to_owned()), left: true }
}

/// A request that waits for its answer. Dropping it before that notifies the server.
struct PendingRequest {
    handle: Option<RequestHandle<RoleClient>>,
    wire: Arc<Wire>,
    progressing: Arc<ProgressRegistry>,
}

impl PendingRequest {
    async fn answer(&mut self) -> Result<ServerResult, ServiceError> {
        match &mut self.handle {
            Some(handle) => (&mut handle.rx).await.unwrap_or(Err(ServiceError::TransportClosed)),
            None => Err(ServiceError::TransportClosed),
        }
    }

    fn id(&self) -> Option<rmcp::model::RequestId> {
        self.handle.as_ref().map(|handle| handle.id.clone())
    }

    /// Forgets an answered request.
    fn end(&mut self) -> RequestState {
        let Some(handle) = self.handle.take() else { return RequestState::default() };
        self.progressing.forget(handle.progress_token);
        self.wire.end(&handle.id)
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        self.progressing.forget(handle.progress_token.clone());
        self.wire.give_up(&handle.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let reason = Some("nothing waits for the answer any more".to_owned());
            runtime.spawn(async move { drop(handle.cancel(reason).await) });
        }
    }
}
