use std::time::Duration;

use serde_json::Value;

use crate::hint;

/// What the body of a failure says, whatever its shape: `{"error": {…}}`, `{"error": "…"}`, the
/// flat form of several compatible endpoints, Google's `google.rpc.Status`, plain text, or nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Said {
    /// The `type`s it names, and Google's `status`.
    pub kinds: Vec<String>,
    /// The codes it names, numbers as text, and Google's `reason`s.
    pub codes: Vec<String>,
    /// The ids of the quotas that it says are used up.
    pub quotas: Vec<String>,
    /// What it says to people; empty if nothing.
    pub message: String,
    /// The HTTP status it names, where a body carries one.
    pub status: Option<u16>,
    /// The wait it asks for, where a body carries one.
    pub retry_after: Option<Duration>,
    /// The body, where it was JSON.
    pub body: Value,
}

impl Said {
    /// Reads a body.
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        match serde_json::from_slice(body) {
            Ok(value) => Self::read_json(value),
            Err(_) if looks_like_html(body) => {
                Self { message: "an HTML page".into(), ..Self::default() }
            }
            Err(_) => {
                let message = String::from_utf8_lossy(body).trim().to_owned();
                Self { message, ..Self::default() }
            }
        }
    }

    /// Reads a body that is JSON already.
    #[must_use]
    pub fn read_json(mut body: Value) -> Self {
        let mut said = Self::default();
        // Google's endpoints write a failed stream as a list.
        if let Some(first) = body.as_array_mut().and_then(|items| items.first_mut()) {
            body = first.take();
        }
        match body.get("error").filter(|error| !error.is_null()).unwrap_or(&body) {
            Value::String(message) => said.message.clone_from(message),
            error => said.take(error),
        }
        said.body = body;
        said
    }

    /// Adds a type as AWS writes it: with a namespace before `#`, or a URL behind `:`, or neither.
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
        self.kinds.extend(text("/type"));
        let is_word = |status: &String| status.parse::<u16>().is_err();
        self.kinds.extend(text("/status").filter(is_word));
        if let Some(kind) = text("/__type") {
            self.add_kind(&kind);
        }
        let codes = ["/code", "/details/error_code", "/error_code", "/innererror/code"];
        self.codes.extend(codes.into_iter().filter_map(text));
        self.message = ["/message", "/detail", "/msg", "/Message"]
            .into_iter()
            .find_map(text)
            .unwrap_or_default();
        self.status = ["/status_code", "/raw_status_code", "/status", "/code"]
            .into_iter()
            .filter_map(text)
            .filter_map(|status| status.parse().ok())
            .find(|status| (400..600).contains(status));
        let details = error.get("details").and_then(Value::as_array);
        details.into_iter().flatten().for_each(|detail| self.take_detail(detail));
    }

    /// Takes an `ErrorInfo`, a `QuotaFailure` or a `RetryInfo` of Google's, told apart by their
    /// fields: <https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto>.
    fn take_detail(&mut self, detail: &Value) {
        let text = |value: &Value, field: &str| value.get(field)?.as_str().map(str::to_owned);
        self.codes.extend(text(detail, "reason"));
        let violations = detail.get("violations").and_then(Value::as_array);
        self.quotas.extend(
            violations.into_iter().flatten().filter_map(|violation| text(violation, "quotaId")),
        );
        let delay = text(detail, "retryDelay").and_then(|delay| hint::seconds(&delay));
        self.retry_after = self.retry_after.or(delay);
    }
}

/// Does this begin as a page for people does?
pub(crate) fn looks_like_html(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"<")
}

/// Is this the body of a failure that came with status 200?
pub(crate) fn is_failure(body: &Value) -> bool {
    body.get("error").is_some_and(|error| !error.is_null())
        || body.get("object").is_some_and(|object| object == "error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_shape_is_read() {
        #[track_caller]
        fn check(body: &str, kind: &str, codes: &[&str], message: &str, status: Option<u16>) {
            let said = Said::read(body.as_bytes());
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
        check("upstream connect error", "", &[], "upstream connect error", None);
        check("<html><body>502</body></html>", "", &[], "an HTML page", None);
        check("", "", &[], "", None);
        check(r#"[1, {"error": 2}]"#, "", &[], "", None);
        check(r#"{"error": 3}"#, "", &[], "", None);
    }

    #[test]
    fn the_details_of_google_are_read() {
        let said = Said::read(
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
            let mut said = Said::default();
            said.add_kind(header);
            assert_eq!(said.kinds.join(","), kind, "{header}");
        }
    }

    proptest::proptest! {
        /// Spec: E11
        #[test]
        fn no_body_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            let said = Said::read(&bytes);
            proptest::prop_assert!(said.status.is_none_or(|status| (400..600).contains(&status)));
        }
    }
}
