use super::*;

fn settings<'a>(base_url: &'a str, key: &'a ApiKey) -> EndpointSettings<'a> {
    EndpointSettings {
        provider: "test",
        model: "m",
        base_url,
        path: "/chat",
        credential: Some(Credential { header: "authorization", prefix: "Bearer ", key }),
        headers: &[],
        timeouts: Timeouts::default(),
        rows: &[],
    }
}

fn open(base_url: &str, key: &ApiKey) -> Result<Endpoint, ConfigError> {
    Endpoint::open(&settings(base_url, key))
}

#[test]
fn a_base_url_is_checked_before_anything_is_sent() {
    let key = ApiKey::new("0123456789");
    #[track_caller]
    fn check(base_url: &str, key: &ApiKey, expected: Result<&str, &str>) {
        let opened = open(base_url, key).map(|endpoint| endpoint.url.to_string());
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
fn a_path_beside_differs_in_the_path_alone() {
    let key = ApiKey::new("0123456789");
    let settings = settings("https://example.com/v1", &key);
    let chat = Endpoint::open(&settings).unwrap();
    let path = "/chat:stream?alt=sse";
    let stream = chat.beside(&EndpointSettings { path, ..settings }).unwrap();
    assert_eq!(stream.url.as_str(), "https://example.com/v1/chat:stream?alt=sse");
    assert_eq!(stream.headers, chat.headers);
}

/// Spec: E10
#[test]
fn a_key_that_no_header_can_carry_is_refused_without_being_shown() {
    let error = open("https://example.com", &ApiKey::new("secret\nkey")).unwrap_err();
    assert!(matches!(error, ConfigError::InvalidKey));
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
fn a_signature_is_over_what_is_sent_and_marked() {
    let key = ApiKey::new("0123456789");
    let endpoint = open("https://example.com", &key).unwrap();
    assert!(!endpoint.headers_for(b"four").unwrap().contains_key("x-signature"));
    let endpoint = endpoint.signed_by(Arc::new(Length));
    let headers = endpoint.headers_for(b"four").unwrap();
    assert_eq!(headers["x-signature"], "POST https://example.com/chat 2 4");
    assert!(headers["x-signature"].is_sensitive());
    assert!(headers.contains_key("authorization"));
}

#[test]
fn a_further_path_shares_all_but_the_url() {
    let key = ApiKey::new("0123456789");
    let endpoint = open("https://example.com", &key).unwrap().signed_by(Arc::new(Length));
    let beside = endpoint
        .beside(&EndpointSettings {
            provider: "test",
            model: "m",
            base_url: "https://example.com",
            path: "/stream",
            credential: None,
            headers: &[],
            timeouts: Timeouts::default(),
            rows: &[],
        })
        .unwrap();
    let headers = beside.headers_for(b"").unwrap();
    assert_eq!(headers["x-signature"], "POST https://example.com/stream 2 0");
}

#[tokio::test]
async fn a_type_in_a_header_decides_before_the_status_does() {
    const ROWS: &[Row] = &[Row::new(403, crate::When::Type(&["Busy"]), crate::Class::Transient)];
    let settings = EndpointSettings {
        provider: "test",
        model: "m",
        base_url: "http://127.0.0.1:9",
        path: "",
        credential: None,
        headers: &[],
        timeouts: Timeouts::default(),
        rows: ROWS,
    };
    let endpoint = Endpoint::open(&settings).unwrap();
    let refused = || {
        let mut response = http::Response::new(b"{}".to_vec());
        *response.status_mut() = reqwest::StatusCode::FORBIDDEN;
        response.headers_mut().insert("x-kind", HeaderValue::from_static("a#Busy:b"));
        Response::from(response)
    };
    let unread = endpoint.refused(refused(), None).await;
    assert!(matches!(unread, ProviderError::AuthFailed(_)), "{unread:?}");
    let read = endpoint.kind_header("x-kind").refused(refused(), None).await;
    assert_eq!(read.status(), Some(403));
    assert!(read.is_retryable(), "{read:?}");
}

#[tokio::test]
async fn a_recorded_answer_is_what_its_content_type_says() {
    let endpoint = open("http://127.0.0.1:9", &ApiKey::new("0123456789")).unwrap();
    for (content_type, is_event_stream) in [
        ("application/json; charset=utf-8", false),
        ("text/html", false),
        ("text/event-stream", true),
        ("no header\ncarries this", true),
    ] {
        let mut answer = endpoint.recorded(content_type, "pardon?");
        assert_eq!(answer.is_event_stream().await.unwrap(), is_event_stream, "{content_type}");
        assert_eq!(answer.retry_after(), None);
    }
    let read: Value = endpoint.recorded("application/json", "[1]").json().await.unwrap();
    assert_eq!(read, serde_json::json!([1]));
    let mut events = endpoint.recorded("text/event-stream", "data: one\n\n").events();
    assert_eq!(events.next().await.unwrap().unwrap().data, "one");
    assert_eq!(events.next().await.unwrap(), None);
}

#[test]
fn loopback_is_told_from_the_network() {
    for (url, expected) in [
        ("http://127.0.0.1:1/", true),
        ("http://localhost/", true),
        ("http://[::1]:8080/", true),
        ("https://api.example.com/", false),
        ("http://localhost.example.com/", false),
    ] {
        assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
    }
}
