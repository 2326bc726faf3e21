//! Stream for a server's unrequested messages.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use http::StatusCode;
use rmcp::transport::common::http_header::EVENT_STREAM_MIME_TYPE;
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpError};
use sse_stream::Sse;

use super::{Headers, Http, HttpError, answer, events, fault};
use crate::backoff::Backoff;

type Events = BoxStream<'static, Result<Sse, SseError>>;

/// A stream that is requested again after each end, for as long as the connection lasts.
struct Common {
    http: Http,
    uri: Arc<str>,
    session: Arc<str>,
    headers: Headers,
    events: Option<Events>,
    /// Id of the last event, after which the server continues.
    last_event: Option<String>,
    /// Wait that the server asked for.
    retry: Option<Duration>,
    backoff: Backoff,
}

impl Http {
    /// Opens the common stream.
    ///
    /// # Errors
    ///
    /// [`StreamableHttpError::ServerDoesNotSupportSse`] if the server has none. After a temporary failure the stream
    /// itself tries again.
    pub(super) async fn open_common(
        self,
        uri: Arc<str>,
        session: Arc<str>,
        headers: Headers,
    ) -> Result<Events, HttpError> {
        let backoff = Backoff::new(Arc::clone(&self.clock));
        let (events, last_event, retry) = (None, None, None);
        let mut common =
            Common { http: self, uri, session, headers, events, last_event, retry, backoff };
        match common.ask().await {
            Ok(events) => common.events = Some(events),
            Err(Unopened::Refused) => return Err(StreamableHttpError::ServerDoesNotSupportSse),
            Err(Unopened::Failed(error)) => {
                tracing::debug!(%error, "the common stream is not open");
            }
        }
        Ok(stream::unfold(common, Common::next).boxed())
    }
}

enum Unopened {
    Refused,
    Failed(HttpError),
}

impl Common {
    async fn next(mut self) -> Option<(Result<Sse, SseError>, Self)> {
        loop {
            if let Some(events) = &mut self.events {
                if let Some(Ok(event)) = events.next().await {
                    self.backoff.reset();
                    self.last_event = event.id.clone().or(self.last_event);
                    self.retry = event.retry.map(Duration::from_millis).or(self.retry);
                    return Some((Ok(event), self));
                }
                self.events = None;
            }
            self.backoff.wait(self.retry).await;
            if let Ok(events) = self.ask().await {
                self.events = Some(events);
                // Notifications may have been lost while the stream was closed.
                self.http.changed.notify_one();
            }
        }
    }

    /// Requests the stream, starting after the last event.
    fn ask(&self) -> impl Future<Output = Result<Events, Unopened>> + Send + use<> {
        let http = self.http.clone();
        let (session, last_event) = (Some(&*self.session), self.last_event.as_deref());
        let request = http.client.get(&*self.uri);
        let request = Http::with_stream_headers(request, session, last_event, self.headers.clone());
        async move {
            let response = http.send(request, None).await.map_err(Unopened::Failed)?;
            let status = response.status();
            let is_stream = answer::is(&response, EVENT_STREAM_MIME_TYPE)
                && answer::compression_fault(&response).is_none();
            if status.is_success() && is_stream {
                return Ok(events::read(response, None, Arc::clone(&http.wire)));
            }
            let is_for_now = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT];
            // A response that is no stream cannot carry unrequested messages.
            let is_refused = status.is_success() || status.is_client_error();
            match is_refused && !is_for_now.contains(&status) {
                true => Err(Unopened::Refused),
                false => {
                    let refused = answer::read_fault(response, &http.reading()).await;
                    Err(Unopened::Failed(fault(refused)))
                }
            }
        }
    }
}
