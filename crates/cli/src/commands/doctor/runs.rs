//! Runs without a process.

use super::finding::Finding;

/// Returns the finding about interrupted runs.
pub(super) fn interrupted_finding(count: usize) -> Finding {
    let what = match count {
        0 => return Finding::ok("runs", "no run is interrupted"),
        1 => "1 run is interrupted: its process has ended".to_owned(),
        count => format!("{count} runs are interrupted: their processes have ended"),
    };
    Finding::mend(
        "runs",
        what,
        "resume them with `backstop resume --all`; `backstop runs --state interrupted` lists them",
    )
}
