#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
//! The Ollama adapter against servers on loopback.

mod it {
    mod answers;
    mod ask;
    mod conformance;
    mod faults;
    mod laws;
    mod requests;
}
