use std::sync::Mutex;

use backstop_clock::BoxFuture;
use backstop_testkit::{Ending, Loopback, Reply};
use layer0::Timestamp;

use super::*;

fn settings<'a>(base_url: &'a str, key: &'a ApiKey) -> EndpointSettings<'a> {
    EndpointSettings {
        provider: "test",
        model: "m",
        base_url,
        is_own: false,
        paths: ["/chat".to_owned(), "/chat:stream?alt=sse".to_owned()],
        key: Some((("authorization", "Bearer "), key)),
        secrets: vec![key],
        signer: None,
        headers: &[],
        further_headers: &[],
        user_agent: None,
        timeouts: Timeouts::default(),
        rows: &[],
        kind_header: None,
        extra_body: Map::new(),
    }
}

fn open(base_url: &str, key: &ApiKey) -> Result<Endpoint, ProviderConfigError> {
    Endpoint::open(settings(base_url, key))
}

#[test]
fn base_url_is_checked_before_sending() {
    let key = ApiKey::new("0123456789");
    #[track_caller]
    fn check(base_url: &str, key: &ApiKey, expected: Result<&str, &str>) {
        let opened = open(base_url, key).map(|endpoint| endpoint.urls[0].to_string());
        match expected {
            Ok(url) => assert_eq!(opened.unwrap(), url),
            Err(error) => assert_eq!(opened.unwrap_err().to_string(), error),
        }
    }
    check("https://api.example.com/v1", &key, Ok("https://api.example.com/v1/chat"));
    check("http://localhost:8080/", &key, Ok("http://localhost:8080/chat"));
    check("http://localhost:8080//", &key, Ok("http://localhost:8080/chat"));
    check(
        "ftp://example.com",
        &key,
        Err("base URL `ftp://example.com` is not usable: the scheme is neither `http` nor \
             `https`"),
    );
    check(
        "https://me:0123456789@example.com",
        &key,
        Err("base URL `https://[redacted]@example.com` is not usable: it carries a user \
             name or a password"),
    );
    check(
        "api.example.com",
        &key,
        Err("base URL `api.example.com` is not usable: relative URL without a base"),
    );
    check(
        "https://example.com/v1?version=1",
        &key,
        Err("base URL `https://example.com/v1?…` is not usable: a path is appended to \
             it, so it cannot end in `?…` or `#…`"),
    );
}

#[test]
fn a_stream_has_a_path_of_its_own() {
    let endpoint = open("https://example.com/v1", &ApiKey::new("0123456789")).unwrap();
    let [whole, streamed] = endpoint.urls.each_ref().map(Url::as_str);
    assert_eq!(whole, "https://example.com/v1/chat");
    assert_eq!(streamed, "https://example.com/v1/chat:stream?alt=sse");
    assert_eq!(endpoint.base_url, "https://example.com/v1");
}

/// Spec: E10
#[test]
fn unusable_key_is_refused_without_being_shown() {
    let error = open("https://example.com", &ApiKey::new("secret\nkey")).unwrap_err();
    assert!(matches!(error, ProviderConfigError::InvalidKey));
    assert!(!format!("{error} {error:?} {}", error.hint()).contains("secret"));
}

/// Spec: E10
#[test]
fn the_header_that_carries_the_key_is_marked() {
    let endpoint = open("https://example.com", &ApiKey::new("0123456789")).unwrap();
    assert!(endpoint.headers["authorization"].is_sensitive());
    assert!(!format!("{endpoint:?} {:?}", endpoint.headers).contains("0123456789"));
}

#[derive(Debug)]
struct Length;

impl Sign for Length {
    fn sign(&self, request: &Unsigned<'_>) -> Result<HeaderMap, ProviderError> {
        let said = format!(
            "{} {} {} {}",
            request.method,
            request.url,
            request.headers.len(),
            request.body.len()
        );
        let value = HeaderValue::from_str(&said)
            .map_err(|_| ProviderError::AuthFailed("it cannot be signed".into()))?;
        Ok(HeaderMap::from_iter([(HeaderName::from_static("x-signature"), value)]))
    }
}

/// Spec: E10
#[test]
fn signature_covers_what_is_sent() {
    let key = ApiKey::new("0123456789");
    let endpoint = open("https://example.com", &key).unwrap();
    let [whole, streamed] = endpoint.urls.clone();
    assert!(!endpoint.headers_for(&whole, b"four").unwrap().contains_key("x-signature"));
    let signer: Option<Arc<dyn Sign>> = Some(Arc::new(Length));
    let settings = EndpointSettings { signer, ..settings("https://example.com", &key) };
    let endpoint = Endpoint::open(settings).unwrap();
    let headers = endpoint.headers_for(&whole, b"four").unwrap();
    assert_eq!(headers["x-signature"], "POST https://example.com/chat 4 4");
    assert!(headers["x-signature"].is_sensitive());
    assert!(headers.contains_key("authorization"));
    let headers = endpoint.headers_for(&streamed, b"").unwrap();
    assert_eq!(headers["x-signature"], "POST https://example.com/chat:stream?alt=sse 4 0");
}

#[tokio::test]
async fn error_type_header_decides_before_the_status() {
    const ROWS: &[FailureRule] =
        &[FailureRule::new(403, crate::When::Type(&["Busy"]), Class::Transient)];
    let key = ApiKey::new("0123456789");
    let open = |kind_header| {
        let settings = settings("http://127.0.0.1:9", &key);
        Endpoint::open(EndpointSettings { rows: ROWS, kind_header, ..settings }).unwrap()
    };
    let refused = || {
        let mut response = http::Response::new(b"{}".to_vec());
        *response.status_mut() = reqwest::StatusCode::FORBIDDEN;
        response.headers_mut().insert("x-kind", HeaderValue::from_static("a#Busy:b"));
        Response::from(response)
    };
    let unread = open(None).classify_response(refused(), &ResponseHead::default()).await;
    assert!(matches!(unread, ProviderError::AuthFailed(_)), "{unread:?}");
    let read = open(Some("x-kind")).classify_response(refused(), &ResponseHead::default()).await;
    assert_eq!(read.status(), Some(403));
    assert!(read.is_retryable(), "{read:?}");
}

/// A clock that records the requested delays; each ends at once, or never.
#[derive(Debug)]
struct NotingClock {
    waits: Arc<Mutex<Vec<Duration>>>,
    is_over: bool,
}

impl Clock for NotingClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, wait: Duration) -> BoxFuture {
        self.waits.lock().unwrap().push(wait);
        if self.is_over {
            Box::pin(std::future::ready(()))
        } else {
            Box::pin(std::future::pending())
        }
    }
}

/// Spec: P8
#[tokio::test]
async fn status_outlives_a_body_that_drips() {
    let mut drips = Reply::new(401, "text/plain", "no key").split(1);
    drips.piece_delay = Duration::from_millis(2);
    let hangs = drips.clone().ending(Ending::HangAt(0));
    for (reply, is_over, idle, limit, said) in [
        (drips.clone(), false, 60_000, 2_000, "authentication failed: no key"),
        (hangs.clone(), true, 60_000, 2_000, "authentication failed: status 401 without a message"),
        (hangs, true, 500, 500, "authentication failed: status 401 without a message"),
    ] {
        let key = ApiKey::new("0123456789");
        let server = Loopback::replying([reply]);
        let mut endpoint = open(&server.url(), &key).unwrap();
        endpoint.timeouts = endpoint.timeouts.idle(Duration::from_millis(idle));
        let waits = Arc::<Mutex<Vec<Duration>>>::default();
        endpoint.clock = Arc::new(NotingClock { waits: Arc::clone(&waits), is_over });
        let response = endpoint.client.post(endpoint.urls[0].clone()).send().await.unwrap();
        let error = endpoint.classify_response(response, &ResponseHead::default()).await;
        assert_eq!(error.to_string(), said);
        // One limit for all pieces.
        assert_eq!(*waits.lock().unwrap(), [Duration::from_millis(limit)]);
    }
}

#[tokio::test]
async fn code_behind_many_words_is_found() {
    const ROWS: &[FailureRule] =
        &[FailureRule::any(crate::When::Code(&["spent"]), Class::QuotaExhausted)];
    let key = ApiKey::new("0123456789");
    let settings = settings("http://127.0.0.1:9", &key);
    let endpoint = Endpoint::open(EndpointSettings { rows: ROWS, ..settings }).unwrap();
    for begin in ["", "\u{feff}"] {
        let words = "what you sent ".repeat(20_000);
        let body = format!(r#"{begin}{{"error":{{"message":"{words}","code":"spent"}}}}"#);
        let mut response = http::Response::new(body.into_bytes());
        *response.status_mut() = reqwest::StatusCode::BAD_REQUEST;
        let error = endpoint.classify_response(response.into(), &ResponseHead::default()).await;
        assert!(matches!(error, ProviderError::QuotaExhausted { .. }), "{error:?}");
        assert!(error.to_string().len() < 1_000);
    }
}

/// Spec: R3
#[tokio::test]
async fn wait_in_words_counts_without_a_header() {
    let key = ApiKey::new("0123456789");
    let endpoint = open("http://127.0.0.1:9", &key).unwrap();
    let words = "Rate limit reached. Please try again in 1.5s.";
    let body = serde_json::json!({ "error": { "code": 429, "message": words } });
    let refused = || {
        let mut response = http::Response::new(body.to_string().into_bytes());
        *response.status_mut() = reqwest::StatusCode::TOO_MANY_REQUESTS;
        Response::from(response)
    };
    let seconds = |seconds: f64| layer0::failure::Retry::After(Duration::from_secs_f64(seconds));
    let retry = |error: ProviderError| layer0::failure::Failure::retry(&error);
    let (silent, told) = (
        ResponseHead::default(),
        ResponseHead { retry_after: Some(Duration::from_secs(7)), ..ResponseHead::default() },
    );
    assert_eq!(retry(endpoint.classify_response(refused(), &silent).await), seconds(1.5));
    assert_eq!(retry(endpoint.classify_response(refused(), &told).await), seconds(7.0));
    assert_eq!(retry(endpoint.failure(body.clone(), &silent)), seconds(1.5), "in a stream");
}
