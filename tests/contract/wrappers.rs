//! Wrappers around a tool, each with everything that is done with a tool's answer.

mod runs;
mod tools;

use futures_util::future::join_all;

use self::runs::{answer, settled};
use self::tools::{Act, Place};

/// A wrapper around a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrapper {
    /// None.
    Bare,
    /// Made once for a key. The cells are those of a second call with the key of the first.
    Once,
    /// Answered from the record of another run.
    Recorded,
}

/// The cells of a row: the answer for each act, and the next call after a lost one was settled, as one that happened and
/// as one that did not.
struct Row {
    place: Place,
    wrapper: Wrapper,
    answers: [&'static str; Act::ALL.len()],
    next: [&'static str; 2],
}

const SECRET: &str = "ok: {\"key\":\"[redacted]\",\"paid\":1}";
const MUCH: &str = "ok: {\"paid\":1,\"rows\":[\"xxxxxxxxxxxxx, by reference";
const PROBED: &str = "ok: {\"paid\":7}";
/// The call is not made again: a person said that it happened, and with which output.
const DONE: &str = "ok: {\"paid\":9}, begun 1";

const HERE: [&str; 7] = [
    SECRET,
    "tool.invalid_output: Tool 'work' failed: invalid outp, can be settled",
    "tool.execution_failed: Tool 'work' failed: connection l, can be settled",
    "tool.execution_failed: Tool 'work' failed: connection l, can be settled",
    "tool.timeout: Tool 'work' timed out after 2s, can be settled",
    MUCH,
    PROBED,
];
const PROGRAM: [&str; 7] = [
    SECRET,
    "tool.invalid_output: Tool 'work' failed: invalid outp, can be settled",
    "tool.execution_failed: Tool 'work' failed: Code exit_1:, can be settled",
    "tool.execution_failed: Tool 'work' failed: starting `no, can be settled",
    "tool.timeout: Tool 'work' timed out after 2s, can be settled",
    MUCH,
    PROBED,
];
const WALLED: [&str; 7] = [
    SECRET,
    "tool.invalid_output: Tool 'work' failed: invalid outp, can be settled",
    "tool.execution_failed: Tool 'work' failed: Code exit_1:, can be settled",
    "env.provision_failed: env.provision_failed: program `n, can be settled",
    "tool.timeout: Tool 'work' timed out after 2s, can be settled",
    MUCH,
    PROBED,
];
const SERVER: [&str; 7] = [
    SECRET,
    "tool.invalid_output: Tool 'box__work' failed: invalid, can be settled",
    "tool.interrupted: Interrupted: may already have ac, can be settled",
    "tool.unavailable: Tool 'box__work' is not availabl, can be settled",
    "tool.timeout: Tool 'box__work' timed out after, can be settled",
    MUCH,
    PROBED,
];

/// Returns the answers of a second call with the key of the first. Only a call that did nothing is made again.
const fn once(first: [&'static str; 7]) -> [&'static str; 7] {
    const ELSEWHERE: &str = "tool.done_elsewhere: Not run: it failed before, and m";
    const HAPPENED: &str = "ok: It happened; what it answered is";
    [SECRET, HAPPENED, ELSEWHERE, first[3], ELSEWHERE, MUCH, PROBED]
}

/// The code of a tool's answer, and the beginning of its text for the model.
const TABLE: [Row; 14] = [
    Row {
        place: Place::Here,
        wrapper: Wrapper::Bare,
        answers: HERE,
        next: ["tool.execution_failed: Tool 'work' failed: connection l, begun 2"; 2],
    },
    Row {
        place: Place::Here,
        wrapper: Wrapper::Once,
        answers: once(HERE),
        next: [DONE, "tool.execution_failed: Tool 'work' failed: connection l, begun 2"],
    },
    Row {
        place: Place::Here,
        wrapper: Wrapper::Recorded,
        answers: HERE,
        next: ["tool.execution_failed: Tool 'work' failed: connection l, begun 1"; 2],
    },
    Row {
        place: Place::Operator,
        wrapper: Wrapper::Bare,
        // It has no probe.
        answers: [
            SECRET,
            "tool.execution_failed: Tool 'work' failed: Code output., can be settled",
            "tool.execution_failed: Tool 'work' failed: Code tool.ex, can be settled",
            "tool.execution_failed: Tool 'work' failed: Code tool.ex",
            "tool.timeout: Tool 'work' timed out after 2s, can be settled",
            MUCH,
            "tool.execution_failed: Tool 'work' failed: Code tool.ex, can be settled",
        ],
        next: ["tool.execution_failed: Tool 'work' failed: Code tool.ex, begun 2"; 2],
    },
    Row {
        place: Place::Operator,
        wrapper: Wrapper::Recorded,
        // The fork dispatches nothing that could be settled.
        answers: [
            SECRET,
            "tool.execution_failed: Tool 'work' failed: Code output.",
            "tool.execution_failed: Tool 'work' failed: Code tool.ex",
            "tool.execution_failed: Tool 'work' failed: Code tool.ex",
            "tool.timeout: Tool 'work' timed out after 2s",
            MUCH,
            "tool.execution_failed: Tool 'work' failed: Code tool.ex",
        ],
        next: ["tool.execution_failed: Tool 'work' failed: Code tool.ex, begun 1"; 2],
    },
    Row {
        place: Place::Program,
        wrapper: Wrapper::Bare,
        answers: PROGRAM,
        next: ["tool.execution_failed: Tool 'work' failed: Code exit_1:, begun 2"; 2],
    },
    Row {
        place: Place::Program,
        wrapper: Wrapper::Once,
        answers: once(PROGRAM),
        next: [DONE, "tool.execution_failed: Tool 'work' failed: Code exit_1:, begun 2"],
    },
    Row {
        place: Place::Program,
        wrapper: Wrapper::Recorded,
        answers: PROGRAM,
        next: ["tool.execution_failed: Tool 'work' failed: Code exit_1:, begun 1"; 2],
    },
    Row {
        place: Place::Walled,
        wrapper: Wrapper::Bare,
        answers: WALLED,
        next: ["tool.execution_failed: Tool 'work' failed: Code exit_1:, begun 2"; 2],
    },
    Row {
        place: Place::Walled,
        wrapper: Wrapper::Once,
        answers: once(WALLED),
        next: [DONE, "tool.execution_failed: Tool 'work' failed: Code exit_1:, begun 2"],
    },
    Row {
        place: Place::Walled,
        wrapper: Wrapper::Recorded,
        answers: WALLED,
        next: ["tool.execution_failed: Tool 'work' failed: Code exit_1:, begun 1"; 2],
    },
    Row {
        place: Place::Server,
        wrapper: Wrapper::Bare,
        answers: SERVER,
        next: ["tool.interrupted: Interrupted: may already have ac, begun 2"; 2],
    },
    Row {
        place: Place::Server,
        wrapper: Wrapper::Once,
        answers: once(SERVER),
        next: [DONE, "tool.interrupted: Interrupted: may already have ac, begun 2"],
    },
    Row {
        place: Place::Server,
        wrapper: Wrapper::Recorded,
        answers: SERVER,
        next: ["tool.interrupted: Interrupted: may already have ac, begun 1"; 2],
    },
];

/// Returns the cells of a row that are not as the table says.
async fn check(row: &Row) -> Vec<String> {
    let Row { place, wrapper, .. } = *row;
    let mut wrong = Vec::new();
    let mut compare = |column: String, expected: &str, cell: String| {
        if cell != expected {
            let at = format!("{place:?} {wrapper:?} {column}");
            wrong.push(format!("{at}: {cell}\n    expected {expected}"));
        }
    };
    for (act, expected) in Act::ALL.into_iter().zip(row.answers) {
        compare(format!("{act:?}"), expected, answer(place, wrapper, act).await);
    }
    for (happened, expected) in [true, false].into_iter().zip(row.next) {
        let cell = settled(place, wrapper, happened).await;
        compare(format!("settled, happened: {happened}"), expected, cell);
    }
    wrong
}

/// Spec: D7, N1, O1, O3, Q2, S9, T7, T10, T13, T14, T16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_keep_every_rule_within_wrappers() {
    let wrong = join_all(TABLE.iter().map(check)).await.concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
