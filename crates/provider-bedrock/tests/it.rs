#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
//! The Bedrock adapter against servers on loopback.

mod it {
    mod ask;
    mod conformance;
    mod faults;
    mod laws;
    mod requests;
    mod served;
}
