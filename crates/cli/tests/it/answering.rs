//! The streamed answer at a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop_testkit::{Loopback, Reply};

use crate::bench::Bench;

const CALLS: &str = "[[model]]\ntext = \"First I look.\"\n\
    tool_calls = [{ id = \"c1\", name = \"look\", arguments = { at = \"the sky\" } }]\n\
    [[model]]\ntext = \"It is blue.\\nAnd wide.\"\n";
const TOOL: &str = "[[tools]]\nkind = \"command\"\nname = \"look\"\ndescription = \"d\"\n\
    capabilities = []\ncommand = [\"echo\", \"blue\"]\n";

/// Spec: C1
#[test]
fn the_answer_stands_on_the_terminal_once() {
    let bench = Bench::new();
    bench.agent(CALLS, TOOL);
    let (code, screen) = bench.at_terminal("", &["run", "agent.toml"]).end();
    assert_eq!(code, 0, "{screen}");
    assert_eq!(screen.matches("First I look.").count(), 1, "{screen}");
    assert_eq!(screen.matches("It is blue.").count(), 1, "{screen}");
    assert_eq!(screen.matches("And wide.").count(), 1, "{screen}");
    let find = |text: &str| screen.find(text).unwrap_or_else(|| panic!("{text}: {screen}"));
    let called = find("look");
    assert!(find("First I look.") < find("{\"at\":\"the sky\"}") && called < find("It is blue."));
    let (code, screen) = bench.at_terminal("", &["run", "agent.toml", "--quiet"]).end();
    assert_eq!((code, screen.matches("It is blue.").count()), (0, 1), "{screen}");
    let whole = bench.at_terminal("", &["run", "agent.toml", "--json"]).end().1;
    assert_eq!(whole.matches("\"elapsed_ms\":").count(), 1, "{whole}");
}

/// Spec: C1, R6. Streams half an answer and breaks off, then answers whole.
#[test]
fn what_a_failed_attempt_said_is_called_void() {
    let asked = Arc::new(AtomicUsize::new(0));
    let server = Loopback::serving(move |_| {
        let said = r#"data: {"choices":[{"delta":{"content":"half an"}}]}"#;
        let whole =
            r#"data: {"choices":[{"delta":{"content":"a whole one"},"finish_reason":"stop"}]}"#;
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::events(format!("{said}\n\n")),
            _ => Reply::events(format!("{whole}\n\ndata: [DONE]\n\n")),
        }
    });
    let bench = Bench::new();
    bench.write(
        "agent.toml",
        &format!(
            "[agent]\ninput = \"x\"\n[agent.retry]\nbase_ms = 0\n[model]\nprovider = \"openai\"\n\
             model = \"m\"\nbase_url = \"{}\"\n",
            server.url()
        ),
    );
    let (code, screen) = bench.at_terminal("", &["run", "agent.toml"]).end();
    assert_eq!(code, 0, "{screen}");
    let find = |text: &str| screen.find(text).unwrap_or_else(|| panic!("{text}: {screen}"));
    assert!(find("half an") < find("(the text above is void)"), "{screen}");
    assert!(find("(the text above is void)") < find("a whole one"), "{screen}");
    assert_eq!(screen.matches("a whole one").count(), 1, "{screen}");
    let piped = bench.run(&["run", "agent.toml"]).ok();
    assert_eq!(piped.out, "a whole one\n");
}
