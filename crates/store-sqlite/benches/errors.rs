//! The cost of reading errors in a full store, compared with a nearly empty one.
//!
//! `cargo bench -p backstop-store-sqlite --bench errors`; with `-- --quick` for a short run.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

use std::process::ExitCode;
use std::time::Duration;

use backstop_error_store::{ErrorFilter, ErrorStore, NewError, Origin};
use backstop_redact::Redactor;
use backstop_store_sqlite::{Database, Durability, SqliteErrorStore};
use backstop_testkit::measure::{Goal, Row, Spread, now};
use futures_util::future::join_all;
use layer0::id::ErrorId;
use layer0::{Code, Timestamp, code};
use tokio::runtime::Runtime;

/// Limit of the second longest of a hundred reads.
const LIMIT: Duration = Duration::from_millis(50);
const LOOKS: usize = 100;
/// Number of errors in a session.
const A_SESSION: usize = 20;
/// Number of tools that fail: the first ones in the large session, all in the others.
const TOOLS: usize = 7;
const TOOLS_OF_LARGE: usize = 3;

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let errors = if quick { 5_000 } else { 100_000 };
    let runtime = Runtime::new().expect("a runtime can be made");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let rows = runtime.block_on(async {
        let open = async |name: &str| {
            let path = folder.path().join(name);
            Database::open(path, Durability::Normal).await.expect("a new file opens").errors()
        };
        let (few, many) = (open("few.db").await, open("many.db").await);
        fill(&few, A_SESSION).await;
        let ids = fill(&many, errors).await;
        looks(&few, &many, &ids).await
    });
    println!("{}", Row::HEAD);
    rows.iter().for_each(|row| println!("{row}"));
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Stores different errors of 3,000 characters each, and returns their ids. Those beyond one session's errors are half
/// in sessions of one run each, and half in one large run.
async fn fill(store: &SqliteErrorStore, errors: usize) -> Vec<ErrorId> {
    let text = "at line 3 of the query\n".repeat(130);
    let numbers: Vec<usize> = (0..errors).collect();
    let mut ids = Vec::with_capacity(errors);
    for numbers in numbers.chunks(256) {
        let stored = numbers.iter().map(|number| {
            let at = i64::try_from(*number).unwrap_or(0);
            let is_in_large = *number >= A_SESSION && number % 2 == 1;
            let (place, tool) = if is_in_large {
                ("large".to_owned(), number % TOOLS_OF_LARGE)
            } else {
                (format!("{:08}", number / A_SESSION / 2), number % TOOLS)
            };
            let (session, run) = (format!("ses_{place}"), format!("run_{place}"));
            let tool = format!("tool_{tool}");
            let at = Timestamp::from_millis(1_767_225_600_000 + at);
            let origin = Origin::new(at, session, run, "c1", tool);
            let reason = Code::new(code::TOOL_EXECUTION_FAILED);
            let text = format!("error {number}\n{text}");
            store.store(NewError::new(origin, reason, None, &text, &Redactor::new()))
        });
        ids.extend(
            join_all(stored).await.into_iter().map(|stored| stored.expect("it is stored").id),
        );
    }
    ids
}

/// Reads from both stores in turns: the time of the slowest read but one of a hundred, relative to the limit.
async fn looks(few: &SqliteErrorStore, many: &SqliteErrorStore, ids: &[ErrorId]) -> Vec<Row> {
    let filter = || ErrorFilter::new().limit(50);
    let large_run = || filter().run("run_large");
    let asks: [(&str, ErrorFilter); 9] = [
        ("list", filter()),
        ("list of a tool", filter().tool("tool_3")),
        ("list of a session", filter().session("ses_00000000")),
        ("list of a run", filter().run("run_00000000")),
        ("list of a large session", filter().session("ses_large")),
        ("list of a large session, no such tool", filter().session("ses_large").tool("tool_3")),
        ("list of a large run", large_run()),
        ("list of a large run, no such tool", large_run().tool("tool_3")),
        ("list of a large run, other session", large_run().session("ses_00000000")),
    ];
    let mut rows = Vec::new();
    for (name, filter) in asks {
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for _ in 0..LOOKS {
            for (store, took) in [(few, &mut small), (many, &mut large)] {
                let began = now();
                drop(store.list(filter.clone()).await.expect("they are listed"));
                took.push(began.elapsed());
            }
        }
        rows.extend(row(name, small, large));
    }
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for _ in 0..LOOKS {
        for (store, took) in [(few, &mut small), (many, &mut large)] {
            let began = now();
            store.stats(Some(50)).await.expect("they are counted");
            took.push(began.elapsed());
        }
    }
    rows.extend(row("stats", small, large));
    let mut large = Vec::new();
    for id in ids.iter().step_by(ids.len() / LOOKS) {
        let began = now();
        assert!(many.find(id).await.expect("it is read").into_item().is_some(), "it is found");
        large.push(began.elapsed());
    }
    rows.extend(row("show", large.clone(), large));
    rows
}

fn row(name: &str, small: Vec<Duration>, large: Vec<Duration>) -> [Row; 2] {
    let (small, large) = (slowest_but_one(small), slowest_but_one(large));
    let of_limit = Spread::of(vec![large.div_duration_f64(LIMIT)]);
    let of_small = Spread::of(vec![large.div_duration_f64(small)]);
    [
        Row::new(format!("{name}, P99 in a full store"), of_limit, Goal::Within("50 ms")),
        Row::new(format!("{name}, P99 to that in one of 20"), of_small, Goal::AtMost(25.0)),
    ]
}

fn slowest_but_one(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took.get(took.len().saturating_sub(2)).copied().unwrap_or_default()
}
