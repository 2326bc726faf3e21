use std::collections::BTreeSet;

use testkit::conformance::responses_samples;

use super::ask::ask;
use crate::it::conformance::describe;

/// Every way OpenAI is known to fail, sent whole and byte by byte.
///
/// Spec: P2, P3, P4, P5, P6, P7, E10
#[tokio::test]
async fn every_known_failure_is_what_the_table_says() {
    let mut table = BTreeSet::new();
    for sample in responses_samples() {
        for piece_bytes in [None, Some(1)] {
            for streamed in [true, false] {
                if streamed || !sample.streamed {
                    let mut reply = sample.reply.clone();
                    reply.piece_bytes = piece_bytes;
                    table.insert(describe(&sample, streamed, ask(reply, streamed).await));
                }
            }
        }
    }
    let table: Vec<String> = table.into_iter().collect();
    insta::assert_snapshot!(table.join("\n"));
}
