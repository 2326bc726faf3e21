//! Valid JSON stays valid.

use backstop_redact::Redactor;
use layer0::JsonText;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Text before, in and after secrets, and the ends of strings.
const FRAGMENTS: &[&str] = &[
    "password",
    "token",
    "api_key",
    "=",
    ":",
    " ",
    "\"",
    "'",
    "\\",
    "\n",
    "abc123def456",
    "x",
    "{",
    "}",
    ",",
    "-----BEGIN PRIVATE KEY-----",
    "-----END PRIVATE KEY-----",
    "MIIE",
    "Bearer ",
    "Authorization: ",
    "Digest username=\"a\"",
    "Cookie: a=b; c=d",
    "https://",
    "ada:pass@",
    "@",
    "sk-abcdefghijklmnop1234",
    "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "--token ",
    "held",
    "-secret",
    "-key",
    "%2D",
    "\u{7}",
    "é",
    "123456789",
    "identified by '",
    "-u a:b12",
    "Private-Lines: 2",
    "eyJabcdefgh.a.b",
    "Authorization: Digest realm=",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Spec: S3, S9
    #[test]
    fn json_stays_json(
        fragments in prop::collection::vec(prop::sample::select(FRAGMENTS), 0..14),
        depth in 0..3,
    ) {
        let text = fragments.concat();
        let mut value = json!({ "message": text, "password": 5, "list": ["--api-key", text, 12345678, [text, true], 1.5] });
        for _ in 0..depth {
            value = json!({ "inner": value.to_string(), "n": 1 });
        }
        let redactor = Redactor::new().with_secret("held-secret-key");
        let json = value.to_string();
        let once = redactor.redact(&json);
        prop_assert!(serde_json::from_str::<Value>(&once).is_ok(), "{json}\nbecame\n{once}");
        let own = regex::Regex::new("[2-4]{2,3}").unwrap();
        let own = Redactor::new().with_pattern(own).redact(&json).into_owned();
        prop_assert!(serde_json::from_str::<Value>(&own).is_ok(), "{json}\nbecame\n{own}");
        let held = redactor.redact_held(&json);
        prop_assert!(serde_json::from_str::<Value>(&held).is_ok(), "{json}\nbecame\n{held}");
    }
}

/// Spec: S9
#[test]
fn members_with_secret_names_are_all_kept() {
    let redactor =
        Redactor::new().with_secret("first-holder-1234").with_secret("second-holder-1234");
    let mut value = json!({
        "first-holder-1234": { "calls": 1 }, "second-holder-1234": { "calls": 2 },
        "[redacted] 2": 3, "n": 12345678,
    });
    let expected = json!({
        "[redacted]": { "calls": 1 }, "[redacted] 3": { "calls": 2 }, "[redacted] 2": 3, "n": 12345678,
    });
    let text = JsonText::from(&value);
    assert_eq!(redactor.redact_held_json(text), expected);
    assert!(redactor.redact_settings(&mut value));
    assert_eq!(value, expected);
}

/// A setting at the end of a string has no value after it.
///
/// Spec: S3, S9
#[test]
fn values_end_with_their_string() {
    let redactor = Redactor::new().with_secret("12345678");
    for (text, expected) in [
        (r#"["x password=",1500.0,true,null]"#, r#"["x password=",1500.0,true,null]"#),
        (r#"["sshpass -p ",555555,{"x":1}]"#, r#"["sshpass -p ","[redacted]",{"x":1}]"#),
        (r#"[["password='",7],"it's"]"#, r#"[["password='",7],"it's"]"#),
        (r#"{"pin":12345678,"a":[-12345678.5]}"#, r#"{"pin":"[redacted]","a":["[redacted]"]}"#),
    ] {
        assert_eq!(redactor.redact(text), expected);
    }
}

/// Spec: S9
#[test]
fn held_numbers_become_text() {
    let redactor = Redactor::new().with_secret("12345678");
    let mut value = json!({ "pin": 12345678, "n": [1.5] });
    assert_eq!(
        redactor.redact_held_json(JsonText::from(&value)),
        json!({ "pin": "[redacted]", "n": [1.5] })
    );
    assert!(redactor.redact_settings(&mut value));
    assert_eq!(value, json!({ "pin": "[redacted]", "n": [1.5] }));
}

/// Spec: S3, S9
#[test]
fn key_with_trailing_backslash_keeps_its_quotes() {
    let text = "Private-Lines: 2\nAAAA\\";
    let mut value = json!({ "list": [text, "\\", "-----END PRIVATE KEY-----"], "n": 1 });
    for depth in 0..3 {
        let redacted = Redactor::new().redact(&value.to_string()).into_owned();
        assert!(serde_json::from_str::<Value>(&redacted).is_ok(), "{depth}: {redacted}");
        assert!(!redacted.contains("AAAA"), "{depth}: {redacted}");
        value = json!({ "inner": value.to_string(), "n": 1 });
    }
}
