//! The contract of every memory.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use backstop_react::{Memory, MemoryEntry, MemoryQuery};
use futures_util::future::join_all;

use super::suite::{Suite, checks};

type Subject = Arc<dyn Memory>;

/// Checks memories against the contract of [`Memory`]: the next run of a session can read the result of a run until it
/// is forgotten. `make` makes an empty memory, of eight entries or more, for each trial.
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_react::RecentMemory;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// backstop_testkit::contract::memory(async || Arc::new(RecentMemory::new(8)) as _).check().await;
/// # }
/// ```
///
/// Specification: M1, D12.
pub fn memory(make: impl AsyncFn() -> Subject + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            begins_empty,
            forgets_everything,
            forgets_what_a_session_left,
            keeps_any_text,
            keeps_the_last_answer_of_a_run,
            remembers_what_a_run_came_to,
            reading_changes_nothing,
            takes_many_writes_at_once,
            writes_a_dropped_entry_whole_or_not_at_all,
        ],
    )
}

async fn write(memory: &Subject, session: &str, run: &str, output: &str) {
    let entry = MemoryEntry::new(session, run, "what is it?", output);
    memory.write(entry).await.expect("it is written");
}

async fn read(memory: &Subject, session: &str) -> Vec<String> {
    memory.read(MemoryQuery::new(session, "what is it?")).await.expect("it is read")
}

async fn knows(memory: &Subject, session: &str, output: &str) -> bool {
    read(memory, session).await.iter().any(|entry| entry.contains(output))
}

async fn forget(memory: &Subject, session: Option<&str>) -> u64 {
    memory.forget(session.map(Into::into).as_ref()).await.expect("it is forgotten")
}

async fn begins_empty(memory: Subject) {
    assert!(read(&memory, "s").await.is_empty());
    assert_eq!(forget(&memory, None).await, 0);
    assert_eq!(forget(&memory, Some("s")).await, 0);
}

async fn remembers_what_a_run_came_to(memory: Subject) {
    write(&memory, "s", "run_1", "a lighthouse").await;
    write(&memory, "s", "run_2", "an owl").await;
    assert!(knows(&memory, "s", "a lighthouse").await, "{:?}", read(&memory, "s").await);
    assert!(knows(&memory, "s", "an owl").await, "{:?}", read(&memory, "s").await);
}

async fn reading_changes_nothing(memory: Subject) {
    write(&memory, "s", "run_1", "a lighthouse").await;
    let first = read(&memory, "s").await;
    assert_eq!(read(&memory, "s").await, first);
    assert_eq!(forget(&memory, None).await, 1, "one was written");
}

async fn forgets_what_a_session_left(memory: Subject) {
    for (session, run, output) in [
        ("s-1", "run_1", "a lighthouse"),
        ("s-2", "run_2", "an owl"),
        ("s-1", "run_3", "a harbour"),
    ] {
        write(&memory, session, run, output).await;
    }
    assert_eq!(forget(&memory, Some("s-1")).await, 2, "as many as the session left");
    for output in ["a lighthouse", "a harbour"] {
        assert!(!knows(&memory, "s-1", output).await, "{output} is forgotten");
        assert!(!knows(&memory, "s-2", output).await, "{output} is forgotten everywhere");
    }
    assert!(knows(&memory, "s-2", "an owl").await, "another session's stays");
    assert_eq!(forget(&memory, Some("s-1")).await, 0, "nothing is forgotten twice");
    assert_eq!(forget(&memory, Some("s-3")).await, 0);
}

async fn forgets_everything(memory: Subject) {
    write(&memory, "s-1", "run_1", "a lighthouse").await;
    write(&memory, "s-2", "run_2", "an owl").await;
    assert_eq!(forget(&memory, None).await, 2);
    assert!(!knows(&memory, "s-1", "a lighthouse").await && !knows(&memory, "s-2", "an owl").await);
    assert_eq!(forget(&memory, None).await, 0, "nothing is forgotten twice");
    write(&memory, "s-1", "run_3", "a harbour").await;
    assert!(knows(&memory, "s-1", "a harbour").await, "what comes later is remembered");
}

async fn keeps_the_last_answer_of_a_run(memory: Subject) {
    write(&memory, "s", "run_1", "half a lighthouse").await;
    write(&memory, "s", "run_2", "an owl").await;
    write(&memory, "s", "run_1", "a harbour").await;
    assert!(knows(&memory, "s", "a harbour").await, "what the run came to at last");
    assert!(!knows(&memory, "s", "half a lighthouse").await, "and nothing else of it");
    assert_eq!(forget(&memory, None).await, 2, "one entry a run");
}

async fn keeps_any_text(memory: Subject) {
    for (number, output) in ["quote ' \" \\", "ä\u{1f600}", "line\nline", "%_[]"].iter().enumerate()
    {
        let session = format!("s'{number}");
        write(&memory, &session, &format!("run_{number}"), output).await;
        assert!(knows(&memory, &session, output).await, "{output:?}");
    }
}

async fn takes_many_writes_at_once(memory: Subject) {
    let writes = (0..8).map(|number| {
        let memory = Arc::clone(&memory);
        tokio::spawn(async move { write(&memory, "s", &format!("run_{number}"), "an owl").await })
    });
    for written in join_all(writes).await {
        written.expect("it does not panic");
    }
    assert_eq!(forget(&memory, Some("s")).await, 8, "none is lost");
}

/// The future is dropped after each possible number of polls.
async fn writes_a_dropped_entry_whole_or_not_at_all(memory: Subject) {
    for polls in 0..4 {
        {
            let entry = MemoryEntry::new("s", "run_1", "what is it?", "a lighthouse");
            let mut writing = pin!(memory.write(entry));
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                if writing.as_mut().poll(&mut cx).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        // A dropped write may still be pending; it completes before later ones.
        write(&memory, "another", "run_2", "a boat").await;
        let known = knows(&memory, "s", "a lighthouse").await;
        assert_eq!(forget(&memory, Some("s")).await, u64::from(known));
    }
}
