//! Generated histories on both journals.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Undisturbed;

fn answer() -> impl Strategy<Value = Value> {
    let tool = prop::sample::select(vec!["look", "look", "wait", "pay", "stop", "absent"]);
    let calls = prop::collection::vec((tool, 0..3), 1..4).prop_map(|calls| {
        let call = |(index, (tool, at)): (usize, (&str, i32))| json!({ "id": format!("c{index}"), "name": tool, "arguments": { "at": at } });
        json!({ "tool_calls": calls.into_iter().enumerate().map(call).collect::<Vec<_>>() })
    });
    let error = prop::sample::select(vec![
        json!({ "error": { "kind": "rate_limited", "retry_after_ms": 1_500 } }),
        json!({ "error": { "kind": "transient" } }),
        json!({ "error": { "kind": "timeout" } }),
        json!({ "error": { "kind": "stream_truncated" } }),
        json!({ "error": { "kind": "auth_failed" } }),
    ]);
    prop_oneof![
        4 => calls,
        2 => error,
        1 => Just(json!({ "text": "said", "stop_reason": "max_tokens" })),
        1 => Just(json!({ "text": "done" })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Spec: J1
    #[test]
    fn generated_histories_come_to_the_same_record(
        mut answers in prop::collection::vec(answer(), 1..6),
        deaths in prop::collection::vec(any::<prop::sample::Index>(), 4),
    ) {
        answers.push(json!({ "text": "done" }));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let undisturbed = Undisturbed::execute(Value::Array(answers)).await;
            for death in deaths {
                undisturbed.dies_after(1 + death.index(undisturbed.entries)).await;
            }
        });
    }
}
