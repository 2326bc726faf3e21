//! No text panics the reader of patterns, what it says of one is a bounded line, and a pattern is read as the
//! same from the text it writes.
#![no_main]

use backstop_event_log::Patterns;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match text.parse::<Patterns>() {
        Ok(patterns) => {
            let written = patterns.to_string();
            assert_eq!(written.parse().as_ref(), Ok(&patterns), "{written}");
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.chars().count() < 600, "{message}");
            assert!(!message.chars().any(char::is_control), "{message:?}");
        }
    }
});
