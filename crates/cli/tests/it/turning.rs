//! Sessions of a conversation: back to before a turn, into a copy, and forward again.

use backstop_testkit::ScriptedEndpoint;

use crate::chatting::{PROMPT, STORE, answers, bench, chat, sent, session, users};

/// Key that clears the line.
const CLEAR: &str = "\u{15}";

/// Spec: W7
#[test]
fn undo_goes_on_from_before_the_last_turn() {
    let answers = answers(4);
    let endpoint = ScriptedEndpoint::openai(answers);
    let bench = bench(&endpoint);
    let terminal = chat(&bench, &[]);
    terminal.say("/undo");
    terminal.wait_for("there is no turn yet", 1);
    for (number, line) in ["one", "two"].into_iter().enumerate() {
        terminal.say(line);
        terminal.wait_for("1 model call", number + 1);
    }
    let first = session(&bench);
    terminal.say("/undo");
    terminal.wait_for("the last turn is taken back", 1);
    terminal.wait_for(PROMPT, 5);
    terminal.say(", or rather three");
    terminal.wait_for("1 model call", 3);
    assert_eq!(users(&endpoint), ["one", "two, or rather three"]);
    let second = session(&bench);
    assert_ne!(first, second, "what was taken back stays where it is");
    // Also for the first turn of a session that continues another one.
    terminal.say("/undo");
    terminal.wait_for("the last turn is taken back", 2);
    terminal.wait_for(PROMPT, 7);
    terminal.say(" or four");
    terminal.wait_for("1 model call", 4);
    assert_eq!(users(&endpoint), ["one", "two, or rather three or four"]);
    terminal.say("/quit");
    assert_eq!(terminal.end().0, 0);
    assert_eq!(bench.run(&["runs", "--session", &first, "--json"]).ok().json().len(), 2);
    bench.run(&["verify"]).ok();
}

/// Spec: W7. A turn that is refused is no turn of the new session: the next one goes on from the same place.
#[test]
fn turn_that_did_not_begin_keeps_the_history() {
    let endpoint = ScriptedEndpoint::openai(answers(3));
    let bench = bench(&endpoint);
    let agent = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    let short = "[agent]\ninput_schema = { type = \"string\", maxLength = 9 }\n";
    bench.write("agent.toml", &agent.replace("[agent]\n", short));
    let terminal = chat(&bench, &[]);
    for (number, line) in ["one", "two"].into_iter().enumerate() {
        terminal.say(line);
        terminal.wait_for("1 model call", number + 1);
    }
    terminal.say("/undo");
    terminal.wait_for("the last turn is taken back", 1);
    terminal.say(&format!("{CLEAR}far too long"));
    terminal.wait_for("input.invalid: ", 1);
    terminal.say("three");
    terminal.wait_for("1 model call", 3);
    assert_eq!(users(&endpoint), ["one", "three"]);
    terminal.say("/quit");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn undo_again_goes_back_further() {
    let endpoint = ScriptedEndpoint::openai(answers(5));
    let bench = bench(&endpoint);
    let terminal = chat(&bench, &[]);
    for (number, line) in ["one", "two", "three"].into_iter().enumerate() {
        terminal.say(line);
        terminal.wait_for("1 model call", number + 1);
    }
    terminal.say("/undo");
    terminal.wait_for("the last turn is taken back", 1);
    terminal.say(&format!("{CLEAR}/undo"));
    terminal.wait_for("one more turn is taken back", 1);
    terminal.say(", or rather four");
    terminal.wait_for("1 model call", 4);
    assert_eq!(users(&endpoint), ["one", "two, or rather four"]);
    let said = sent(&endpoint);
    assert_eq!(said[said.len() - 2], ("assistant".into(), "answer 0".into()));
    // Also into the messages before the session began, and after a fork.
    terminal.say("/fork");
    terminal.wait_for("going on in a session of its own, which", 1);
    for (line, shown, times) in [
        ("/undo", "one more turn is taken back", 2),
        ("/undo", "one more turn is taken back", 3),
        ("/undo", "there is no turn before", 1),
    ] {
        terminal.say(&format!("{CLEAR}{line}"));
        terminal.wait_for(shown, times);
    }
    terminal.say(&format!("{CLEAR}five"));
    terminal.wait_for("1 model call", 5);
    assert_eq!(users(&endpoint), ["five"]);
    terminal.say("/quit");
    assert_eq!(terminal.end().0, 0);
    bench.run(&["verify"]).ok();
}

/// Spec: W7
#[test]
fn resume_says_that_nothing_is_open() {
    let endpoint = ScriptedEndpoint::openai(answers(1));
    let bench = bench(&endpoint);
    let terminal = chat(&bench, &[]);
    terminal.say("/resume");
    terminal.wait_for("no turn is open: there is nothing to go on with", 1);
    terminal.say("one");
    terminal.wait_for("1 model call", 1);
    terminal.say("/resume");
    terminal.wait_for("no turn is open: there is nothing to go on with", 2);
    terminal.say("/quit");
    assert_eq!(terminal.end().0, 0);
}

/// Spec: W7
#[test]
fn a_session_is_greeted_by_its_turns() {
    let endpoint = ScriptedEndpoint::openai(answers(1));
    let bench = bench(&endpoint);
    let terminal = chat(&bench, &["--session", "s-1", "--store", STORE]);
    terminal.wait_for("session s-1 is new: it has no turn yet", 1);
    terminal.say("one");
    terminal.wait_for("1 model call", 1);
    terminal.say("/quit");
    let (_, screen) = terminal.end();
    assert!(screen.contains("chat agent.toml --session s-1 --store sqlite:"), "{screen}");
    // The command does not repeat a store that the agent file names.
    let agent = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    bench.write("stored.toml", &format!("{agent}[store]\nurl = \"{STORE}\"\n"));
    let terminal = bench.at_terminal("", &["chat", "stored.toml", "--session", "s-1"]);
    terminal.wait_for("session s-1 has 1 turn", 1);
    terminal.say("/quit");
    let (_, screen) = terminal.end();
    assert!(screen.contains("chat stored.toml --session s-1\r\n"), "{screen}");
}

/// Spec: W7
#[test]
fn fork_leaves_the_session_as_it_is() {
    let answers = answers(3);
    let endpoint = ScriptedEndpoint::openai(answers);
    let bench = bench(&endpoint);
    let terminal = chat(&bench, &[]);
    terminal.say("one");
    terminal.wait_for("1 model call", 1);
    let first = session(&bench);
    terminal.say("/fork");
    terminal.wait_for("going on in a session of its own", 1);
    terminal.say("two");
    terminal.wait_for("1 model call", 2);
    terminal.say("three");
    terminal.wait_for("1 model call", 3);
    terminal.say("/quit");
    terminal.end();
    assert_eq!(users(&endpoint), ["one", "two", "three"]);
    assert_eq!(sent(&endpoint)[1], ("assistant".into(), "answer 0".into()));
    assert_eq!(bench.run(&["runs", "--session", &first, "--json"]).ok().json().len(), 1);
}
