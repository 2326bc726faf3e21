//! What an event log keeps of the transcripts of sessions.

use backstop_event_log::{RunWriter, TranscriptPart};
use layer0::id::RunId;

use super::log::history::{Log, begin, finished, following, open, reopen, warning, whole, write};
use super::suite::{Suite, checks};

/// Holds event logs that keep parts of transcripts against what the contract of
/// [`EventLog`](backstop_event_log::EventLog) says of them: they are read back as they were kept, and none that its run
/// has outgrown, or of which a text was erased. `make` makes an empty log for each trial.
///
/// Specification: D9, M7, S10.
pub fn transcripts(make: impl AsyncFn() -> Log + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            drops_a_part_that_is_older_than_an_erasure,
            drops_the_part_of_another_head,
            ends_before_a_missing_part,
            erases_a_part_with_a_text_of_its_run,
            reads_back_what_is_kept,
            reads_no_part_of_a_run_that_went_on,
            replaces_an_earlier_part,
        ],
    )
}

/// Writes the first run of a session and one that follows it, each with a text, and makes their parts.
async fn two_runs(log: &Log) -> [TranscriptPart; 2] {
    let mut first = open(log, "run_1", "s", 40).await;
    end(&mut first).await;
    let second = begin(log, "run_2", 50, following("s", "run_1")).await;
    end(&mut second.expect("it follows")).await;
    [part(log, "run_1", None).await, part(log, "run_2", Some("run_1")).await]
}

async fn end(writer: &mut RunWriter) {
    write(writer, 60, [warning("private"), finished()]).await.expect("a run ends");
}

/// Makes a part with a text that quotes and escapes.
async fn part(log: &Log, run: &str, follows: Option<&str>) -> TranscriptPart {
    let summary = log.summary(&run.into()).await.expect("it is read").expect("it is known");
    let text = format!(r#"["{run}, ' \u0000 ä {}"]"#, "long ".repeat(2_000));
    TranscriptPart::new(summary.run, summary.head, follows.map(RunId::from), text, log.key())
}

async fn erasures(log: &Log) -> u64 {
    let erasures = log.erasures().await.expect("it is read");
    erasures.expect("a log that keeps transcripts counts its erasures")
}

async fn keep(log: &Log, parts: &[&TranscriptPart]) {
    let parts = parts.iter().map(|part| (*part).clone()).collect();
    log.keep_transcript(parts, erasures(log).await).await.expect("it is kept");
}

async fn read(log: &Log, until: &str) -> Vec<TranscriptPart> {
    let parts = log.transcript(&until.into()).await.expect("it is read");
    assert!(parts.iter().all(|part| part.is_sound(log.key())), "{parts:?}");
    parts
}

async fn reads_back_what_is_kept(log: Log) {
    let [first, second] = two_runs(&log).await;
    assert!(read(&log, "run_2").await.is_empty());
    keep(&log, &[&second, &first]).await;
    assert_eq!(read(&log, "run_2").await, [second, first.clone()], "newest first");
    assert_eq!(read(&log, "run_1").await, [first]);
    assert!(read(&log, "run_3").await.is_empty(), "it is unknown");
}

async fn ends_before_a_missing_part(log: Log) {
    let [first, second] = two_runs(&log).await;
    keep(&log, &[&second]).await;
    assert_eq!(read(&log, "run_2").await, [second]);
    assert!(read(&log, "run_1").await.is_empty());
    whole(&log, "run_3", "other", 70).await;
    keep(&log, &[&first]).await;
    assert!(read(&log, "run_3").await.is_empty(), "it has none");
}

async fn replaces_an_earlier_part(log: Log) {
    let [first, second] = two_runs(&log).await;
    keep(&log, &[&second, &first]).await;
    let run = second.run.clone();
    let later = TranscriptPart::new(run, second.head, None, "[]", log.key());
    keep(&log, &[&later]).await;
    assert_eq!(read(&log, "run_2").await, [later]);
}

async fn drops_the_part_of_another_head(log: Log) {
    let [first, second] = two_runs(&log).await;
    let other = TranscriptPart::new(second.run.clone(), first.head, None, "[]", log.key());
    let unknown = TranscriptPart::new("run_3".into(), first.head, None, "[]", log.key());
    keep(&log, &[&other, &unknown, &first]).await;
    assert!(read(&log, "run_2").await.is_empty() && read(&log, "run_3").await.is_empty());
    assert_eq!(read(&log, "run_1").await, [first], "the others are kept");
}

async fn reads_no_part_of_a_run_that_went_on(log: Log) {
    let [first, second] = two_runs(&log).await;
    keep(&log, &[&second, &first]).await;
    let mut writer = reopen(&log, "run_2", 70).await.expect("nothing follows it");
    assert!(read(&log, "run_2").await.is_empty(), "it is open");
    end(&mut writer).await;
    assert!(read(&log, "run_2").await.is_empty(), "it ended again");
    assert_eq!(read(&log, "run_1").await, [first]);
}

async fn erases_a_part_with_a_text_of_its_run(log: Log) {
    let [first, second] = two_runs(&log).await;
    keep(&log, &[&second, &first]).await;
    log.erase(&"run_1".into(), 2).await.expect("an event is erased");
    assert_eq!(read(&log, "run_2").await, [second]);
    assert!(read(&log, "run_1").await.is_empty());
}

async fn drops_a_part_that_is_older_than_an_erasure(log: Log) {
    let [first, second] = two_runs(&log).await;
    let before = erasures(&log).await;
    log.erase(&"run_1".into(), 2).await.expect("an event is erased");
    let parts = vec![second.clone(), first];
    log.keep_transcript(parts, before).await.expect("it is no failure");
    assert!(read(&log, "run_2").await.is_empty() && read(&log, "run_1").await.is_empty());
    keep(&log, &[&second]).await;
    assert_eq!(read(&log, "run_2").await, [second]);
}
