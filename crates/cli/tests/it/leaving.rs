//! Turns of `chat` that do not stop, and the person who leaves nevertheless.

use backstop_provider::ScriptedAnswer;
use backstop_testkit::ScriptedEndpoint;
use serde_json::json;

use crate::chatting::{bench, chat};
use crate::sqlite;
use crate::terminal::kill;
use crate::worker::until;

/// Spec: W7. The first signal stops the turn, which waits for its store; the second one leaves at once.
#[test]
fn second_interrupt_leaves_a_turn_that_goes_on() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let calls = json!({ "tool_calls": [{ "id": "c1", "name": "slow", "arguments": {} }] });
        let answer: ScriptedAnswer = serde_json::from_value(calls).unwrap();
        let endpoint = ScriptedEndpoint::openai([answer]);
        let bench = bench(&endpoint);
        let terminal = chat(&bench, &[]);
        terminal.say("Do it slowly.");
        until(|| bench.path().join("begun").exists());
        terminal.wait_for("running slow", 1);
        let _locked = sqlite::lock(&bench.path().join("x.db"));
        kill(signal, terminal.id());
        terminal.wait_for("press Ctrl-C again to leave at once", 1);
        kill(signal, terminal.id());
        let (left, screen) = terminal.end();
        assert_eq!(left, code, "{screen}");
    }
}
