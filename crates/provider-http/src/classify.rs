//! The table that classifies failures.
//!
//! Phrases that any provider may use, or a gateway repeat, are checked first, by
//! [`phrases`](crate::phrases). An adapter brings [`FailureRule`]s for the rest; the first match wins.
//! Without a match, the status alone decides, in [`by_status`], the same for all providers. A
//! failure inside a 200 has no status: it matches the rows that look at the body, and takes the
//! status of the row.

use crate::class::Class;
use crate::error_body::ErrorBody;
use crate::phrases::by_words;

/// A row of the table: a failure with this status and this body is of this class.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FailureRule {
    /// The status; `None` matches any, for conditions on the body alone.
    pub status: Option<u16>,
    /// The condition on the body.
    pub when: When,
    /// The class.
    pub class: Class,
}

impl FailureRule {
    /// Makes a row for one status.
    #[must_use]
    pub const fn new(status: u16, when: When, class: Class) -> Self {
        Self { status: Some(status), when, class }
    }

    /// Makes a row for any status.
    #[must_use]
    pub const fn any(when: When, class: Class) -> Self {
        Self { status: None, when, class }
    }

    fn matches(&self, status: Option<u16>, said: &ErrorBody) -> bool {
        (status.is_none() || self.status.is_none() || self.status == status)
            && self.when.matches(said)
    }
}

/// A condition on the body of a failure. Text is compared ignoring ASCII case.
#[derive(Debug, Clone, Copy)]
pub enum When {
    /// All of these hold.
    All(&'static [When]),
    /// One of its codes is one of these.
    Code(&'static [&'static str]),
    /// It has a value at this JSON pointer.
    Has(&'static str),
    /// Its message contains one of these.
    Message(&'static [&'static str]),
    /// Its message begins with one of these.
    MessageStart(&'static [&'static str]),
    /// The id of a quota it names contains one of these.
    Quota(&'static [&'static str]),
    /// Its type is one of these.
    Type(&'static [&'static str]),
}

impl When {
    fn matches(self, said: &ErrorBody) -> bool {
        let one_of = |words: &[&str], list: &[String]| {
            list.iter().any(|said| words.iter().any(|word| word.eq_ignore_ascii_case(said)))
        };
        let message = || said.message.to_ascii_lowercase();
        match self {
            Self::All(conditions) => conditions.iter().all(|condition| condition.matches(said)),
            Self::Code(codes) => one_of(codes, &said.codes),
            Self::Has(pointer) => said.body.pointer(pointer).is_some_and(|it| !it.is_null()),
            Self::Message(parts) => {
                let message = message();
                parts.iter().any(|part| message.contains(&part.to_ascii_lowercase()))
            }
            Self::MessageStart(starts) => {
                let message = message();
                starts.iter().any(|start| message.starts_with(&start.to_ascii_lowercase()))
            }
            Self::Quota(parts) => said.quotas.iter().any(|quota| {
                let quota = quota.to_ascii_lowercase();
                parts.iter().any(|part| quota.contains(&part.to_ascii_lowercase()))
            }),
            Self::Type(kinds) => one_of(kinds, &said.kinds),
        }
    }
}

/// Returns the class of a failure and its status. `status` is `None` inside a 200.
#[must_use]
pub fn classify(
    rows: &[FailureRule],
    status: Option<u16>,
    said: &ErrorBody,
) -> (Class, Option<u16>) {
    if let Some(class) = by_words(status, said) {
        return (class, status.or(said.status));
    }
    let (class, status) = by_rows(rows, status, said);
    // The provider's retry advice counts where the class leaves it open: for a conflict, for a rate
    // limit, and for a failure known by its status alone.
    let class = match (said.should_retry, class, status) {
        (Some(false), Class::RateLimited, _) => Class::QuotaExhausted,
        (Some(false), Class::Transient, Some(409)) => Class::InvalidRequest,
        (Some(true), Class::InvalidRequest, Some(409)) => Class::Transient,
        _ => class,
    };
    (class, status)
}

fn by_rows(rows: &[FailureRule], status: Option<u16>, said: &ErrorBody) -> (Class, Option<u16>) {
    if let Some(row) = rows.iter().find(|row| row.matches(status, said)) {
        return (row.class, status.or(said.status).or(row.status));
    }
    match status.or(said.status) {
        Some(status) => match (by_status(status), said.should_retry) {
            (Class::InvalidRequest, Some(true)) => (Class::Transient, Some(status)),
            (class, _) => (class, Some(status)),
        },
        // The provider broke off an answer, which is its own fault and not the request's.
        None => (Class::Transient, None),
    }
}

/// Returns the class of a failure known by its status alone.
///
/// Official SDKs retry 408, 409, 429 and everything from 500, and so does this. A request that was
/// sent too early (425) can be sent again, by RFC 8470.
#[must_use]
pub const fn by_status(status: u16) -> Class {
    match status {
        401 | 403 => Class::AuthFailed,
        402 => Class::QuotaExhausted,
        404 => Class::NotFound,
        408 | 504 => Class::Timeout,
        409 | 425 => Class::Transient,
        429 => Class::RateLimited,
        499 => Class::Cancelled,
        // Redirects are not followed: the key would be sent to another host.
        300..=498 => Class::InvalidRequest,
        _ => Class::Transient,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[FailureRule] = &[
        FailureRule::new(429, When::Code(&["spend_limit"]), Class::QuotaExhausted),
        FailureRule::new(529, When::Type(&["overloaded"]), Class::Transient),
        FailureRule::any(When::Message(&["too long"]), Class::ContextOverflow),
        FailureRule::new(403, When::Has("/error/metadata/flagged"), Class::ContentBlocked),
        FailureRule::new(400, When::MessageStart(&["limit"]), Class::QuotaExhausted),
        FailureRule::new(
            400,
            When::All(&[When::Type(&["FAILED_PRECONDITION"]), When::Message(&["billing"])]),
            Class::QuotaExhausted,
        ),
        FailureRule::new(429, When::Quota(&["PerDay"]), Class::QuotaExhausted),
    ];

    #[test]
    fn first_matching_row_wins() {
        #[track_caller]
        fn check(status: Option<u16>, body: &str, class: Class, as_status: Option<u16>) {
            let found = classify(ROWS, status, &ErrorBody::read(body.as_bytes()));
            assert_eq!(found, (class, as_status), "{status:?} {body}");
        }
        let spend = r#"{"error":{"code":"spend_limit"}}"#;
        check(Some(429), spend, Class::QuotaExhausted, Some(429));
        check(Some(500), spend, Class::Transient, Some(500));
        check(None, spend, Class::QuotaExhausted, Some(429));
        check(None, r#"{"error":{"type":"Overloaded"}}"#, Class::Transient, Some(529));
        check(Some(413), r#"{"message":"Way TOO LONG"}"#, Class::ContextOverflow, Some(413));
        check(
            Some(403),
            r#"{"error":{"metadata":{"flagged":["x"]}}}"#,
            Class::ContentBlocked,
            Some(403),
        );
        check(Some(400), r#"{"error":"limit reached"}"#, Class::QuotaExhausted, Some(400));
        check(Some(400), r#"{"error":"no limit"}"#, Class::InvalidRequest, Some(400));
        let unpaid = r#"{"error":{"status":"FAILED_PRECONDITION","message":"Enable billing"}}"#;
        check(Some(400), unpaid, Class::QuotaExhausted, Some(400));
        let other = r#"{"error":{"status":"INVALID_ARGUMENT","message":"Enable billing"}}"#;
        check(Some(400), other, Class::InvalidRequest, Some(400));
        let daily = r#"{"error":{"details":[{"violations":[{"quotaId":"RequestsPerDay"}]}]}}"#;
        check(Some(429), daily, Class::QuotaExhausted, Some(429));
        let minutely = r#"{"error":{"details":[{"violations":[{"quotaId":"PerMinute"}]}]}}"#;
        check(Some(429), minutely, Class::RateLimited, Some(429));
        check(None, r#"{"error":{"code":502}}"#, Class::Transient, Some(502));
        check(None, r#"{"error":{}}"#, Class::Transient, None);
    }

    #[test]
    fn only_transient_statuses_are_retried() {
        let retried: Vec<u16> = (300..=599)
            .filter(|status| by_status(*status).into_error(None, "x", None).is_retryable())
            .collect();
        let expected: Vec<u16> = [408, 409, 425, 429].into_iter().chain(500..=599).collect();
        assert_eq!(retried, expected);
    }
}
