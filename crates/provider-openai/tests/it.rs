#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
//! The OpenAi adapter against servers on loopback.

mod it {
    mod answers;
    mod ask;
    mod conformance;
    mod dialects;
    mod faults;
    mod kept;
    mod laws;
    mod requests;
    mod responses {
        mod ask;
        mod conformance;
        mod dialects;
        mod faults;
        mod phases;
        mod laws;
        mod lost;
        mod requests;
        mod served;
    }
}
