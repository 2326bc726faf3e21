//! Conversations at endpoints that refuse what the real ones are reported to refuse: each kind of
//! conversation at each endpoint, and histories of each endpoint at each other one, whole and streamed.

mod conversations;
mod endpoints;
mod odd_tools;

use std::fmt::Write as _;

use backstop_testkit::strict::Dialect;

use self::conversations::{Bench, KINDS};

/// One conversation at one endpoint.
#[derive(Debug)]
struct Cell {
    endpoint: String,
    kind: String,
    mode: &'static str,
    /// The rule that was broken first, or the error of the run.
    broken: String,
}

/// Fails if a cell does, and lists all that do.
#[track_caller]
fn assert_all_hold(failed: &[Cell]) {
    let mut lines = String::new();
    for Cell { endpoint, kind, mode, broken } in failed {
        writeln!(lines, "{endpoint} {kind} {mode} {broken}").unwrap();
    }
    assert!(lines.is_empty(), "requests that an endpoint refuses:\n{lines}");
}

/// Spec: P1
#[tokio::test]
async fn endpoints_take_each_kind_of_conversation() {
    let mut failed = Vec::new();
    for dialect in Dialect::ALL {
        for kind in KINDS {
            for (mode, streamed) in [("whole", false), ("streamed", true)] {
                let bench = Bench::start(dialect, (kind.script)(dialect), streamed);
                if let Err(broken) = bench.hold(kind).await {
                    let endpoint = dialect.name().to_owned();
                    failed.push(Cell { endpoint, kind: kind.name.into(), mode, broken });
                }
            }
        }
    }
    assert_all_hold(&failed);
}

/// Spec: P1
#[tokio::test]
async fn endpoints_take_histories_of_others() {
    let mut failed = Vec::new();
    for from in Dialect::ALL {
        for to in Dialect::ALL.into_iter().filter(|to| *to != from) {
            for (mode, streamed) in [("whole", false), ("streamed", true)] {
                if let Err(broken) = conversations::hold_in_turns(from, to, streamed).await {
                    let kind = format!("after-{}", from.name());
                    failed.push(Cell { endpoint: to.name().into(), kind, mode, broken });
                }
            }
        }
    }
    assert_all_hold(&failed);
}
