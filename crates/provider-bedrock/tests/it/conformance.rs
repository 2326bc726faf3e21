use std::collections::BTreeSet;
use std::fmt::Write;

use layer0::failure::{Failure, Retry};
use testkit::conformance::{self, Sample};

use super::ask::{KEY, TOKEN, ask};

/// Every way Bedrock is known to fail, sent whole and byte by byte.
///
/// Spec: P2, P4, P5, P6, P7, E10
#[tokio::test]
async fn every_known_failure_is_what_the_table_says() {
    let mut table = BTreeSet::new();
    for row in conformance::rows(&["bedrock"]) {
        let samples = row.samples();
        assert!(!samples.is_empty(), "{row:?}");
        for sample in samples {
            for piece_bytes in [None, Some(1)] {
                for streamed in [true, false] {
                    if streamed || !sample.streamed {
                        table.insert(check(&sample, piece_bytes, streamed).await);
                    }
                }
            }
        }
    }
    let table: Vec<String> = table.into_iter().collect();
    insta::assert_snapshot!(table.join("\n"));
}

/// Returns the row of the snapshot; that there is one per sample shows that neither splitting nor
/// streaming made a difference.
async fn check(sample: &Sample, piece_bytes: Option<usize>, streamed: bool) -> String {
    let mut reply = sample.reply.clone();
    reply.piece_bytes = piece_bytes;
    let error = ask(reply, streamed).await.expect_err(&sample.label);
    let context = format!("{} (streamed: {streamed}): {error:?}", sample.label);
    assert_eq!(error.code(), sample.code, "{context}");
    assert_eq!(error.is_retryable(), sample.retryable, "{context}");
    if let Some(wait) = sample.retry_after {
        assert_eq!(error.retry(), Retry::After(wait), "{context}");
    }
    assert!(!context.contains(KEY) && !context.contains(TOKEN), "{context}");
    let mut line = format!("{} => {}, {:?}", sample.label, error.code(), error.retry());
    if let Some(status) = error.status() {
        write!(line, ", status {status}").unwrap();
    }
    line
}
