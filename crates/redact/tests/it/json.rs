//! Valid JSON stays valid.

use backstop_redact::Redactor;
use proptest::prelude::*;
use serde_json::{Value, json};

/// What stands before, in and behind secrets, and what ends strings.
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
    "[104, 101, 108, 100, 45, 115, 101, 99, 114, 101, 116, 45, 107, 101, 121]",
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
        let mut value = json!({ "message": text, "password": 5, "list": ["--api-key", text] });
        for _ in 0..depth {
            value = json!({ "inner": value.to_string(), "n": 1 });
        }
        let redactor = Redactor::new().with_secret("held-secret-key");
        let json = value.to_string();
        let once = redactor.redact(&json);
        prop_assert!(serde_json::from_str::<Value>(&once).is_ok(), "{json}\nbecame\n{once}");
        let held = redactor.redact_held(&json);
        prop_assert!(serde_json::from_str::<Value>(&held).is_ok(), "{json}\nbecame\n{held}");
    }
}

/// Spec: S9
#[test]
fn numeric_settings_that_spell_a_secret_go() {
    let redactor = Redactor::new().with_secret("held-secret-key");
    let mut settings = json!({ "bytes": "held-secret-key".as_bytes(), "ports": [80, 443] });
    assert!(redactor.redact_settings(&mut settings));
    assert_eq!(settings, json!({ "bytes": ["[redacted]"], "ports": [80, 443] }));
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
