//! Generated histories on both journals.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{History, Undisturbed};

/// A child run is its own process: it ends before or after its caller is cancelled by chance.
const TOOLS: [[&str; 7]; 2] = [
    ["look", "look", "look", "wait", "pay", "absent", "stop"],
    ["look", "look", "below", "wait", "pay", "absent", "below"],
];

fn answer(tools: [&'static str; 7]) -> impl Strategy<Value = Value> {
    let tool = prop::sample::select(tools.to_vec());
    let calls = prop::collection::vec((tool, 0..3), 1..4).prop_map(|calls| {
        let call = |(index, (tool, at)): (usize, (&str, i32))| {
            let arguments = match tool {
                "below" => json!({ "input": format!("look at {at}") }),
                _ => json!({ "at": at }),
            };
            json!({ "id": format!("c{index}"), "name": tool, "arguments": arguments })
        };
        json!({ "tool_calls": calls.into_iter().enumerate().map(call).collect::<Vec<_>>() })
    });
    let error = prop::sample::select(vec![
        json!({ "error": { "kind": "rate_limited", "retry_after_ms": 9 } }),
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
        mut answers in prop::sample::select(TOOLS.to_vec())
            .prop_flat_map(|tools| prop::collection::vec(answer(tools), 1..6)),
        model_calls in prop::option::weighted(0.3, 1_u32..6),
        tool_calls in prop::option::weighted(0.3, 1_u32..8),
        deaths in prop::collection::vec(any::<prop::sample::Index>(), 4),
    ) {
        answers.push(json!({ "text": "done" }));
        let answers = Value::Array(answers);
        let undisturbed = Undisturbed::execute(History { answers, model_calls, tool_calls });
        for death in deaths {
            undisturbed.dies_after(1 + death.index(undisturbed.entries));
        }
    }
}
