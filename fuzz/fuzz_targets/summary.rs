//! The summary of an error is one short line, whatever the error and its code are.
#![no_main]

use backstop_error_store::{MAX_SUMMARY_CHARS, Summary};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|given: (Option<&str>, &str)| {
    let (code, error) = given;
    let summary = Summary::from_error(error, code);
    assert!(summary.text.chars().count() <= MAX_SUMMARY_CHARS, "{summary:?}");
    assert!(!summary.text.chars().any(char::is_control), "{summary:?}");
});
