use std::time::Duration;

use backstop_process::hints;
use serde_json::Value;

use crate::decode::{BYTE_ORDER_MARK, from_slice};

/// The body of a failure, in any known form: `{"error": {…}}`, `{"error": "…"}`, the flat form of
/// several compatible endpoints, Google's `google.rpc.Status`, plain text, or nothing.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ErrorBody {
    /// The `type`s in it, and Google's `status`.
    pub kinds: Vec<String>,
    /// The codes in it, numbers as text, and Google's `reason`s.
    pub codes: Vec<String>,
    /// The ids of the exhausted quotas.
    pub quotas: Vec<String>,
    /// The message for people; empty if there is none.
    pub message: String,
    /// The HTTP status in the body, if any.
    pub status: Option<u16>,
    /// The retry delay in the body, if any.
    pub retry_after: Option<Duration>,
    /// The provider's advice on whether to retry, from a header.
    pub should_retry: Option<bool>,
    /// The body, if it is JSON.
    pub body: Value,
}

/// The maximum depth of failures inside messages.
const MAX_WRAPPINGS: usize = 3;

impl ErrorBody {
    /// Reads a body.
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
        match from_slice(body) {
            Ok(value) => Self::read_json(value),
            Err(_) if looks_like_html(body) => {
                Self { message: "an HTML page".into(), ..Self::default() }
            }
            Err(_) => {
                let message = String::from_utf8_lossy(body).trim().to_owned();
                let mut said = Self { message, ..Self::default() };
                said.unwrap_message(MAX_WRAPPINGS);
                said
            }
        }
    }

    /// Makes the body of a failure whose text cannot be read.
    pub(crate) fn with_message(message: String) -> Self {
        Self { message, ..Self::default() }
    }

    /// Reads a body that is already parsed as JSON.
    #[must_use]
    pub fn read_json(body: Value) -> Self {
        Self::read_wrapped(body, MAX_WRAPPINGS)
    }

    fn read_wrapped(mut body: Value, wrappings: usize) -> Self {
        let mut said = Self::default();
        // Google's endpoints send a failed stream as a list.
        if let Some(first) = body.as_array_mut().and_then(|items| items.first_mut()) {
            body = first.take();
        }
        let error = ["error", "base_resp"].into_iter().find_map(|name| body.get(name));
        match error.filter(|error| !error.is_null()).unwrap_or(&body) {
            Value::String(message) => {
                // The other fields describe the failure too.
                said.take(&body);
                said.message.clone_from(message);
            }
            error => {
                said.take(error);
                // OpenRouter keeps the message of the provider behind it here.
                if let Some(raw) = error.pointer("/metadata/raw").and_then(Value::as_str) {
                    said.take_wrapped(raw, wrappings);
                }
            }
        }
        said.unwrap_message(wrappings);
        said.body = body;
        said
    }

    /// Reads a failure that is wrapped in the message of another: as JSON somewhere in it, or as
    /// the data of an event. A message that is nothing else is replaced by the wrapped one.
    fn unwrap_message(&mut self, wrappings: usize) {
        let message = self.message.trim_start();
        let is_all = message.starts_with('{') || message.starts_with("data:");
        let text = std::mem::take(&mut self.message);
        let inner = self.take_wrapped(&text, wrappings);
        self.message = inner.filter(|inner| is_all && !inner.is_empty()).unwrap_or(text);
    }

    /// Reads a failure in a text, and returns its message.
    fn take_wrapped(&mut self, text: &str, wrappings: usize) -> Option<String> {
        let wrappings = wrappings.checked_sub(1)?;
        let json = &text[text.find('{')?..];
        // More text may follow the JSON.
        let value = serde_json::Deserializer::from_str(json).into_iter().next()?.ok()?;
        let inner = Self::read_wrapped(value, wrappings);
        self.kinds.extend(inner.kinds);
        self.codes.extend(inner.codes);
        self.quotas.extend(inner.quotas);
        self.status = self.status.or(inner.status);
        self.retry_after = self.retry_after.or(inner.retry_after);
        Some(inner.message)
    }

    /// Returns all text that may classify the failure, in lower case.
    pub(crate) fn words(&self) -> String {
        let message = self.message.to_ascii_lowercase();
        // For the repr of a dictionary, or JSON in JSON.
        let is_quoting = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\');
        let unquoted: String = message.chars().filter(|c| !is_quoting(*c)).collect();
        let mut words = format!("{message}\n{unquoted}\n");
        for (name, values) in [("code", &self.codes), ("type", &self.kinds)] {
            for value in values {
                words += &format!("{name}:{}\n", value.to_ascii_lowercase());
            }
        }
        words
    }

    /// Adds a type in the form of AWS: with a namespace before `#`, or a URL after `:`, or neither.
    pub(crate) fn add_kind(&mut self, kind: &str) {
        let kind = kind.split(':').next().unwrap_or_default();
        let kind = kind.rsplit('#').next().unwrap_or_default().trim();
        if !kind.is_empty() {
            self.kinds.push(kind.to_owned());
        }
    }

    fn take(&mut self, error: &Value) {
        let text = |pointer: &str| match error.pointer(pointer)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        self.kinds.extend(["/type", "/error_type"].into_iter().filter_map(text));
        let is_word = |status: &String| status.parse::<u16>().is_err();
        self.kinds.extend(text("/status").filter(is_word));
        if let Some(kind) = text("/__type") {
            self.add_kind(&kind);
        }
        let codes = ["/code", "/details/error_code", "/error_code", "/innererror/code"];
        self.codes.extend(codes.into_iter().filter_map(text));
        self.message = MESSAGES.into_iter().find_map(text).unwrap_or_default();
        self.status = ["/status_code", "/raw_status_code", "/status", "/code"]
            .into_iter()
            .filter_map(text)
            .filter_map(|status| status.parse().ok())
            .find(|status| (400..600).contains(status));
        let details = error.get("details").and_then(Value::as_array);
        details.into_iter().flatten().for_each(|detail| self.take_detail(detail));
    }

    /// Reads Google's `ErrorInfo`, `QuotaFailure` or `RetryInfo`, distinguished by their fields:
    /// <https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto>.
    fn take_detail(&mut self, detail: &Value) {
        let text = |value: &Value, field: &str| value.get(field)?.as_str().map(str::to_owned);
        self.codes.extend(text(detail, "reason"));
        let violations = detail.get("violations").and_then(Value::as_array);
        self.quotas.extend(
            violations.into_iter().flatten().filter_map(|violation| text(violation, "quotaId")),
        );
        let delay = text(detail, "retryDelay").and_then(|delay| hints::read_seconds(&delay));
        self.retry_after = self.retry_after.or(delay);
    }
}

/// Pointers to a message.
const MESSAGES: [&str; 7] = [
    "/message",
    "/detail",
    "/detail/0/msg",
    "/msg",
    "/Message",
    "/status_msg",
    "/errors/0/message",
];

/// Returns whether a body begins like an HTML page.
pub(crate) fn looks_like_html(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"<")
}

/// Returns whether a body with status 200 is a failure. An `error` without content is none if the
/// body has other content.
pub(crate) fn is_failure(body: &Value) -> bool {
    let is_named = |name: &str| body.get(name).is_some_and(|value| value == "error");
    let is_error = body.get("error").is_some_and(|error| {
        states_something(error) || (!error.is_null() && (is_named("type") || is_alone(body)))
    });
    is_error
        || is_named("object")
        // The form of MiniMax.
        || body.pointer("/base_resp/status_code").and_then(Value::as_i64).is_some_and(|it| it != 0)
}

/// Returns whether no other field of a body than its error has content.
fn is_alone(body: &Value) -> bool {
    let mut fields = body.as_object().into_iter().flatten();
    fields.all(|(name, value)| name == "error" || !states_something(value))
}

/// Returns whether JSON has content: anything but null, false, zero or empty values, at any depth.
pub(crate) fn states_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(items) => items.iter().any(states_something),
        Value::Object(fields) => fields.values().any(states_something),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_shape_is_read() {
        #[track_caller]
        fn check(body: &str, kind: &str, codes: &[&str], message: &str, status: Option<u16>) {
            let said = ErrorBody::read(body.as_bytes());
            assert_eq!(said.kinds.join(","), kind, "{body}");
            assert_eq!(said.codes, codes, "{body}");
            assert_eq!(said.message, message, "{body}");
            assert_eq!(said.status, status, "{body}");
        }
        check(
            r#"{"type":"error","error":{"type":"t","message":"m","details":{"error_code":"c"}}}"#,
            "t",
            &["c"],
            "m",
            None,
        );
        check(r#"{"error":{"code":429,"message":"m"}}"#, "", &["429"], "m", Some(429));
        check(r#"{"error":"loading"}"#, "", &[], "loading", None);
        check(r#"{"object":"error","message":"m","code":"3051"}"#, "", &["3051"], "m", None);
        check(r#"{"detail":"Not Found"}"#, "", &[], "Not Found", None);
        check(
            r#"{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"m"}"#,
            "AccessDeniedException",
            &[],
            "m",
            None,
        );
        check(r#"{"__type":"aws#"}"#, "", &[], "", None);
        check("\u{feff}{\"error\":\"x\",\"code\":\"c\"}", "", &["c"], "x", None);
        check("upstream connect error", "", &[], "upstream connect error", None);
        check("<html><body>502</body></html>", "", &[], "an HTML page", None);
        check("", "", &[], "", None);
        check(r#"[1, {"error": 2}]"#, "", &[], "", None);
        check(r#"{"error": 3}"#, "", &[], "", None);
        check(r#"{"error":"x","error_type":"v","code":"c"}"#, "v", &["c"], "x", None);
        check(r#"{"detail":[{"msg":"m"}]}"#, "", &[], "m", None);
        check(r#"{"base_resp":{"status_code":2013,"status_msg":"m"}}"#, "", &[], "m", None);
    }

    /// Spec: P4
    #[test]
    fn empty_errors_beside_an_answer_say_nothing() {
        for empty in ["null", "\"\"", "\" \"", "{}", "false", "0", "0.0", "[]"] {
            for error in [empty.to_owned(), format!(r#"{{"message":{empty},"code":null}}"#)] {
                let failure = |body: &str| is_failure(&serde_json::from_str(body).unwrap());
                assert!(!failure(&format!(r#"{{"error":{error},"choices":[1]}}"#)), "{error}");
                assert!(!failure(&format!(r#"{{"error":{error},"done":true}}"#)), "{error}");
                assert!(error == "null" || failure(&format!(r#"{{"error":{error}}}"#)), "{error}");
                let event = format!(r#"{{"type":"error","error":{error}}}"#);
                assert!(error == "null" || failure(&event), "{error}");
            }
        }
        for error in [r#""x""#, "7", "true", r#"{"code":0,"message":"x"}"#, r#"[{"a":1}]"#] {
            let body = format!(r#"{{"error":{error},"choices":[1]}}"#);
            assert!(is_failure(&serde_json::from_str(&body).unwrap()), "{error}");
        }
    }

    #[test]
    fn a_failure_told_as_a_message_is_unwrapped() {
        #[track_caller]
        fn check(body: &str, kinds: &str, codes: &[&str], message: &str) {
            let said = ErrorBody::read(body.as_bytes());
            assert_eq!(said.kinds.join(","), kinds, "{body}");
            assert_eq!(said.codes, codes, "{body}");
            assert_eq!(said.message, message, "{body}");
        }
        let inner = r#"{"error":{"type":"t","code":"c","message":"m"}}"#;
        check(&format!("data: {inner}\n\ndata: [DONE]\n\n"), "t", &["c"], "m");
        check(
            &format!("event: error\ndata: {inner}\n\n"),
            "t",
            &["c"],
            &format!("event: error\ndata: {inner}"),
        );
        for message in [inner.to_owned(), format!("data: {inner}")] {
            let outer = serde_json::json!({ "error": { "message": message, "code": 400 } });
            check(&outer.to_string(), "t", &["400", "c"], "m");
            check(&serde_json::json!({ "error": message }).to_string(), "t", &["c"], "m");
        }
        let told = format!("XException - b'{inner}'. Received Model Group=m");
        let outer = serde_json::json!({ "error": { "message": told } });
        check(&outer.to_string(), "t", &["c"], &told);
        let raw = serde_json::json!({ "error": { "message": "x", "metadata": { "raw": inner } } });
        check(&raw.to_string(), "t", &["c"], "x");
        let mut deep = inner.to_owned();
        for _ in 0..40 {
            deep = serde_json::json!({ "message": deep }).to_string();
            if deep.len() > 1_000_000 {
                break;
            }
        }
        assert!(ErrorBody::read(deep.as_bytes()).codes.is_empty());
    }

    #[test]
    fn the_details_of_google_are_read() {
        let said = ErrorBody::read(
            br#"{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m", "details": [
                7, {"violations": [{"quotaId": "PerDay"}, {}, 3]}, {"violations": 1},
                {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "R"},
                {"retryDelay": "soon"}, {"retryDelay": "14.5s"}, {"retryDelay": "1s"}
            ]}}"#,
        );
        assert_eq!(said.kinds, ["RESOURCE_EXHAUSTED"]);
        assert_eq!(said.codes, ["429", "R"]);
        assert_eq!(said.quotas, ["PerDay"]);
        assert_eq!(said.status, Some(429));
        assert_eq!(said.retry_after, Some(Duration::from_millis(14_500)));
    }

    #[test]
    fn a_type_from_a_header_is_named_alone() {
        for (header, kind) in [
            ("ThrottlingException", "ThrottlingException"),
            ("ThrottlingException:http://internal.amazon.com/coral/", "ThrottlingException"),
            ("aws.protocols#ThrottlingException:http://x/#y", "ThrottlingException"),
            (":", ""),
        ] {
            let mut said = ErrorBody::default();
            said.add_kind(header);
            assert_eq!(said.kinds.join(","), kind, "{header}");
        }
    }

    proptest::proptest! {
        /// Spec: E11
        #[test]
        fn no_body_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            let said = ErrorBody::read(&bytes);
            proptest::prop_assert!(said.status.is_none_or(|status| (400..600).contains(&status)));
        }
    }
}
