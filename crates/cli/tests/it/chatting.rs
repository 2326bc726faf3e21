//! `chat` at a real terminal, with a model that answers over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop_provider::ScriptedAnswer;
use backstop_testkit::{Ending, Loopback, Reply, ScriptedEndpoint};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::terminal::{Terminal, kill};

pub(crate) const STORE: &str = "sqlite:x.db";
/// Sequence that the editor writes before each prompt: it enables bracketed paste.
pub(crate) const PROMPT: &str = "\u{1b}[?2004h";
const UP: &str = "\u{1b}[A";

fn says(text: &str) -> ScriptedAnswer {
    ScriptedAnswer::saying(text)
}

pub(crate) fn answers(count: usize) -> Vec<ScriptedAnswer> {
    (0..count).map(|number| says(&format!("answer {number}"))).collect()
}

fn calls(tool: &str, arguments: Value) -> ScriptedAnswer {
    let call = json!({ "tool_calls": [{ "id": "c1", "name": tool, "arguments": arguments }] });
    serde_json::from_value(call).unwrap()
}

/// A bench with an agent that uses this endpoint, a tool that needs approval and a slow tool.
pub(crate) fn bench(endpoint: &ScriptedEndpoint) -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", STORE);
    let tool = |name: &str, command: &str, more: &str| {
        format!(
            "[[tools]]\nkind = \"command\"\nname = \"{name}\"\ndescription = \"d\"\ncapabilities = []\n\
             command = [\"sh\", \"-c\", \"{command}\"]\n{more}"
        )
    };
    let agent = format!(
        "[agent]\nname = \"talker\"\n[model]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"{}\"\n{}{}{}",
        endpoint.base_url(),
        tool("refund", "echo x >> ran; echo refunded", "approval = true\n"),
        tool("slow", "touch begun; sleep 300", ""),
        tool("fails", "echo broken >&2; exit 3", ""),
    );
    bench.write("agent.toml", &agent);
    bench
}

/// Returns the messages of the last model request, as roles and texts.
pub(crate) fn sent(endpoint: &ScriptedEndpoint) -> Vec<(String, String)> {
    let request = endpoint.requests().pop().unwrap();
    let messages = request.body["messages"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    messages.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect()
}

pub(crate) fn users(endpoint: &ScriptedEndpoint) -> Vec<String> {
    let users = sent(endpoint).into_iter().filter(|(role, _)| role == "user");
    users.map(|(_, text)| text).collect()
}

impl Terminal {
    /// Types a line at the next prompt.
    #[track_caller]
    pub(crate) fn say(&self, text: &str) {
        self.answer(PROMPT, &format!("{text}\r"));
    }
}

pub(crate) fn chat(bench: &Bench, more: &[&str]) -> Terminal {
    let terminal = bench.at_terminal("", &[&["chat", "agent.toml"], more].concat());
    terminal.wait_for("/help lists", 1);
    terminal
}

pub(crate) fn session(bench: &Bench) -> String {
    let run = bench.run(&["runs", "--json", "--limit", "1"]).ok().json().remove(0);
    run["session"].as_str().unwrap().to_owned()
}

/// Spec: W7
#[test]
fn turns_share_a_session_and_stream() {
    let endpoint = ScriptedEndpoint::openai(vec![says("Hello, Ada."), says("You are Ada.")]);
    let bench = bench(&endpoint);
    let terminal = chat(&bench, &[]);
    terminal.say("I am Ada.");
    terminal.wait_for("Hello, Ada.", 1);
    terminal.wait_for("1 model call", 1);
    terminal.say("Who am I?");
    terminal.wait_for("You are Ada.", 1);
    terminal.wait_for("1 model call", 2);
    terminal.say("/quit");
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    assert_eq!(screen.matches("You are Ada.").count(), 1, "it stands there once: {screen}");
    assert_eq!(users(&endpoint), ["I am Ada.", "Who am I?"]);
    let runs = bench.run(&["runs", "--json"]).ok().json();
    assert_eq!((runs.len(), &runs[0]["session"]), (2, &runs[1]["session"]));
    assert!(screen.contains(&format!("chat agent.toml --session {}", session(&bench))), "{screen}");
    assert_eq!(endpoint.requests()[0].body["stream"], true);
}

/// Spec: W7
#[test]
fn an_approval_is_asked_inside_a_turn() {
    let answers = vec![calls("refund", json!({ "order": 7 })), says("It is refunded.")];
    let endpoint = ScriptedEndpoint::openai(answers);
    let bench = bench(&endpoint);
    let terminal = chat(&bench, &[]);
    terminal.say("Refund order 7.");
    terminal.wait_for("needs approval: refund {\"order\":7}", 1);
    terminal.wait_for("run it? [y]es, [n]o, [l]ater: ", 1);
    terminal.type_in("y\n");
    terminal.wait_for("It is refunded.", 1);
    terminal.wait_for("2 model calls", 1);
    terminal.say("/quit");
    let (code, screen) = terminal.end();
    assert_eq!((code, std::fs::read_to_string(bench.path().join("ran")).unwrap().len()), (0, 2));
    assert!(screen.contains("{\"order\":7}"), "{screen}");
}

#[test]
fn an_approval_put_off_is_asked_again() {
    let answers = vec![calls("refund", json!({ "order": 7 })), says("It is refunded.")];
    let endpoint = ScriptedEndpoint::openai(answers);
    let bench = bench(&endpoint);
    let terminal = chat(&bench, &[]);
    terminal.say("Refund order 7.");
    terminal.wait_for("run it? [y]es, [n]o, [l]ater: ", 1);
    terminal.type_in("l\n");
    terminal.wait_for("/resume asks again", 1);
    terminal.say("What now?");
    terminal.wait_for("has another run", 1);
    terminal.say("/resume");
    terminal.wait_for("run it? [y]es, [n]o, [l]ater: ", 2);
    terminal.type_in("y\n");
    terminal.wait_for("It is refunded.", 1);
    terminal.wait_for("2 model calls", 1);
    terminal.answer(PROMPT, "\u{4}");
    assert_eq!(terminal.end().0, 0);
    assert_eq!(users(&endpoint), ["Refund order 7."]);
}

/// Spec: W7
#[test]
fn interrupt_stops_the_turn_and_not_the_program() {
    let answers = vec![calls("slow", json!({})), says("I am still here.")];
    let endpoint = ScriptedEndpoint::openai(answers);
    let bench = bench(&endpoint);
    let terminal = chat(&bench, &[]);
    terminal.say("Do it slowly.");
    while !bench.path().join("begun").exists() {
        std::thread::yield_now();
    }
    terminal.wait_for("running slow", 1);
    terminal.type_in("\u{3}");
    terminal.wait_for("the turn ended cancelled (run.cancelled)", 1);
    terminal.wait_for("1 model call", 1);
    // Until the editor reads the keyboard, Ctrl-C is a signal, and there is no turn to stop.
    terminal.wait_for(PROMPT, 2);
    terminal.type_in("half a line\u{3}");
    terminal.wait_for("(Ctrl-D or /quit leaves)", 1);
    terminal.say("And now?");
    terminal.wait_for("I am still here.", 1);
    terminal.wait_for("1 model call", 2);
    terminal.say("/quit");
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    let drawn = screen.replace("\u{1b}[2K", "\r").replace("^C", "\r");
    let mut turning = drawn.split(['\r', '\n']).filter(|line| line.contains("running slow"));
    let fits = |line: &str| line.chars().count() + "^C".len() <= 80;
    assert!(turning.all(fits), "an echo behind the spinner would begin a line: {screen}");
    assert_eq!(users(&endpoint), ["Do it slowly.", "And now?"]);
    bench.run(&["verify"]).ok();
}

#[test]
fn arrow_keys_bring_earlier_lines_back() {
    let answers = answers(4);
    let endpoint = ScriptedEndpoint::openai(answers);
    let bench = bench(&endpoint);
    let terminal = chat(&bench, &[]);
    for (number, line) in ["first", "second"].into_iter().enumerate() {
        terminal.say(line);
        terminal.wait_for("1 model call", number + 1);
    }
    terminal.say(&format!("{UP}{UP} again"));
    terminal.wait_for("1 model call", 3);
    terminal.say("/quit");
    terminal.end();
    assert_eq!(users(&endpoint), ["first", "second", "first again"]);
    // The inputs of the session are in the history of another process.
    let terminal = chat(&bench, &["--session", &session(&bench)]);
    terminal.say(&format!("{UP}{UP}"));
    terminal.wait_for("1 model call", 1);
    terminal.say("/quit");
    terminal.end();
    assert_eq!(users(&endpoint)[3], "second");
}

/// Half of the answer is on the interrupted line.
#[test]
fn a_note_inside_an_answer_begins_a_line() {
    let server = Loopback::serving(|_| {
        let half = "data: {\"choices\":[{\"delta\":{\"content\":\"half an\"}}]}\n\n";
        let mut reply = Reply::events(half.to_owned() + half);
        reply.ending = Ending::HangAt(half.len());
        reply
    });
    let bench = Bench::new().with("BACKSTOP_STORE", STORE);
    bench.write(
        "agent.toml",
        &format!(
            "[model]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"{}\"\n",
            server.url()
        ),
    );
    let terminal = chat(&bench, &[]);
    terminal.say("One?");
    terminal.wait_for("half an", 1);
    terminal.type_in("\u{3}");
    terminal.wait_for("the turn ended cancelled", 1);
    terminal.say("/quit");
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    assert!(
        screen.contains("\r\nstopping the turn; press Ctrl-C again to leave at once\r\n"),
        "{screen}"
    );
}

/// Spec: W7
#[test]
fn commands_show_turns_errors_and_budget() {
    let answers = vec![calls("fails", json!({})), says("It is broken.")];
    let endpoint = ScriptedEndpoint::openai(answers);
    let bench = bench(&endpoint);
    let terminal = chat(&bench, &[]);
    for (line, shown) in [
        ("/help", "/undo     go on from before"),
        ("/runs", "there is no turn yet"),
        ("/errors", "no errors"),
        ("/budget", "this session used: 0 turns, 0 model calls"),
        ("/dance", "no command `/dance`"),
    ] {
        terminal.say(line);
        terminal.wait_for(shown, 1);
    }
    terminal.say("//help is text");
    terminal.wait_for("It is broken.", 1);
    terminal.wait_for("2 model calls", 1);
    terminal.say("/runs");
    terminal.wait_for("finished  completed", 1);
    terminal.say("/errors");
    terminal.wait_for("tool.execution_failed  1", 1);
    terminal.say("/budget");
    terminal.wait_for("this session used: 1 turn, 2 model calls, 1 tool call", 1);
    terminal.wait_for("max_model_calls 50", 2);
    terminal.say("/quit");
    assert_eq!(terminal.end().0, 0);
    assert_eq!(users(&endpoint), ["/help is text"]);
}

/// Spec: W7, D5
#[test]
fn chat_goes_on_after_kill_9() {
    let answers = vec![says("Hello."), calls("slow", json!({})), says("I was interrupted.")];
    let endpoint = ScriptedEndpoint::openai(answers);
    let bench = bench(&endpoint);
    let terminal = chat(&bench, &[]);
    terminal.say("Hi.");
    terminal.wait_for("1 model call", 1);
    terminal.say("Do it slowly.");
    while !bench.path().join("begun").exists() {
        std::thread::yield_now();
    }
    kill("-KILL", terminal.id());
    terminal.end();
    let terminal = chat(&bench, &["--session", &session(&bench)]);
    terminal.wait_for("the last turn was interrupted; going on with it", 1);
    terminal.wait_for("I was interrupted.", 1);
    terminal.say("/quit");
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    let told = sent(&endpoint).pop().unwrap();
    assert_eq!((told.0.as_str(), told.1.contains("may already have acted")), ("tool", true));
    assert_eq!(users(&endpoint), ["Hi.", "Do it slowly."]);
    bench.run(&["verify"]).ok();
}

/// Spec: W7
#[test]
fn a_failed_turn_leaves_the_conversation_going() {
    let asked = Arc::new(AtomicUsize::new(0));
    let server = Loopback::serving(move |_| {
        let whole = r#"data: {"choices":[{"delta":{"content":"Better."},"finish_reason":"stop"}]}"#;
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::json(401, &json!({ "error": { "message": "no" } })),
            _ => Reply::events(format!("{whole}\n\ndata: [DONE]\n\n")),
        }
    });
    let bench = Bench::new().with("BACKSTOP_STORE", STORE);
    bench.write(
        "agent.toml",
        &format!(
            "[model]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"{}\"\n",
            server.url()
        ),
    );
    let terminal = chat(&bench, &[]);
    terminal.say("One?");
    terminal.wait_for("provider.auth_failed: ", 1);
    terminal.wait_for("1 model call", 1);
    terminal.say("Two?");
    terminal.wait_for("Better.", 1);
    terminal.wait_for("1 model call", 2);
    terminal.say("/quit");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn sigterm_ends_the_program_in_order() {
    let answers = vec![calls("slow", json!({})), says("never")];
    let endpoint = ScriptedEndpoint::openai(answers);
    let bench = bench(&endpoint);
    let terminal = chat(&bench, &[]);
    terminal.say("Do it slowly.");
    while !bench.path().join("begun").exists() {
        std::thread::yield_now();
    }
    kill("-TERM", terminal.id());
    let (code, screen) = terminal.end();
    assert_eq!(code, 3, "{screen}");
    let run = bench.run(&["runs", "--json"]).ok().json().remove(0);
    assert_eq!(run["outcome"], "cancelled", "the record is complete");
}
