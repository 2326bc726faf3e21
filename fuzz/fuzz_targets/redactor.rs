//! A held secret never comes through a redactor, nor does a second pass bring it back, and a string
//! in JSON stays one.
#![no_main]

use std::sync::LazyLock;

use backstop_redact::Redactor;
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

const SECRET: &str = "canary-secret-value";

static REDACTOR: LazyLock<Redactor> = LazyLock::new(|| Redactor::new().with_secret(SECRET));

fuzz_target!(|text: &str| {
    let once = REDACTOR.redact(text);
    assert!(!once.contains(SECRET), "{once}");
    assert!(!REDACTOR.redact(&once).contains(SECRET), "{once}");
    let held = REDACTOR.redact_held(text);
    assert_eq!(REDACTOR.redact_held(&held), held);

    let json = serde_json::json!({ "message": text }).to_string();
    let redacted = Redactor::new().redact(&json).into_owned();
    assert!(serde_json::from_str::<&RawValue>(&redacted).is_ok(), "{redacted}");
});
