//! What is stored of an error is JSON, and a text comes out of it as it went in.
#![no_main]

use backstop_error_store::{raw_json, readable};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

fuzz_target!(|text: &str| {
    let raw = raw_json(text);
    assert!(serde_json::from_str::<&RawValue>(&raw).is_ok(), "{raw}");
    let read = readable(&raw);
    assert!(raw == text || read == text, "{raw}");
});
