//! Checks that a setting is sent or refused.

use backstop_provider::{ModelSettings, ReasoningEffort, ToolChoice};
use layer0::ToolSpec;
use serde_json::{Value, json};

use super::exchange::{answer, serve_replies};
use crate::server::{hello, patient, send};
use crate::wire::Wire;

/// A setting that is neither sent nor refused would be a false promise to the user.
///
/// Spec: P12
pub(super) async fn settings_are_sent_or_refused(wire: Wire) {
    let new = ModelSettings::new;
    let settings = [
        ("top_p", new().top_p(0.375)),
        ("stop", new().stop(["stopsequence"])),
        ("seed", new().seed(424_242)),
        ("reasoning_effort", new().reasoning_effort(ReasoningEffort::Low)),
        ("reasoning_effort", new().reasoning_effort(ReasoningEffort::High)),
        ("tool_choice", new().tool_choice(ToolChoice::Required)),
        ("tool_choice", new().tool_choice(ToolChoice::None)),
        ("tool_choice", new().tool_choice(ToolChoice::Tool("toolname".into()))),
    ];
    let provider = (wire.provider)("http://127.0.0.1:9", patient());
    let without = provider.check_settings(&new());
    assert_eq!(without, Ok(()), "a provider refuses no settings that are not set");
    for streamed in wire.stream_modes() {
        let plain = sent(&wire, new(), streamed).await;
        for (name, settings) in &settings {
            match provider.check_settings(settings) {
                Ok(()) => {
                    let body = sent(&wire, settings.clone(), streamed).await;
                    assert_ne!(body, plain, "`{name}` is neither sent nor refused: {settings:?}");
                }
                Err(refused) => assert_eq!(refused.setting, *name, "{refused}"),
            }
        }
    }
}

async fn sent(wire: &Wire, settings: ModelSettings, streamed: bool) -> Value {
    let server = serve_replies(wire, [wire.says(&answer(wire), streamed)]);
    let provider = (wire.provider)(&server.url(), patient());
    let tool = ToolSpec::new("toolname", "tooldescription", json!({ "type": "object" }));
    let request = hello().settings(settings).tools([tool]);
    let said = send(&*provider, &request, streamed).await;
    said.unwrap_or_else(|error| panic!("settings (streamed: {streamed}): {error}"));
    server.requests().swap_remove(0).body
}
