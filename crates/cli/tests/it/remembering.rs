//! `[memory]` of an agent file, and the tools of a model for notes.

use crate::bench::Bench;

/// A model that repeats the messages that it got, as far as the record has them.
const SAYS: &str = "[[model]]\ntext = \"Noted.\"\n";

fn bench() -> Bench {
    Bench::new().with("BACKSTOP_STORE", "sqlite:x.db")
}

/// Returns the memory that the last run read before its first model call.
fn read(bench: &Bench) -> String {
    let events = bench.run(&["trace", "last", "--json"]).ok().json();
    let read = events.iter().find(|event| event["type"] == "memory.read");
    read.map_or_else(|| "nothing".to_owned(), |event| event["data"].to_string())
}

/// Spec: K2, M1. What a run came to is there in the next process, for those of its scope.
#[test]
fn next_process_remembers() {
    for (scope, others_know) in [("session", false), ("agent", true), ("global", true)] {
        let bench = bench();
        bench.agent(SAYS, &format!("[memory]\nscope = \"{scope}\"\n"));
        let run = |input: &str, session: &str| {
            bench.run(&["run", "agent.toml", "--input", input, "--session", session]).ok();
        };
        run("Alice prefers euros.", "s-1");
        run("And Alice?", "s-1");
        assert!(read(&bench).contains("Alice prefers euros. → Noted."), "{}", read(&bench));
        run("What of Alice?", "s-2");
        assert_eq!(read(&bench).contains("Alice prefers"), others_know, "{scope}");
        let state = bench.run(&["state", "list", "--scope", "session:s-1", "--json"]).ok().json();
        assert_eq!(state.len(), if others_know { 0 } else { 2 });
        bench.run(&["sessions", "forget", "s-1"]).ok();
        run("Once more?", "s-1");
        assert_eq!(read(&bench).contains("Alice prefers"), others_know, "{scope}");
    }
}

/// Spec: K2, Y1. Notes are kept, found and forgotten, where policy lets the model.
#[test]
fn model_keeps_notes() {
    let bench = bench();
    let tools = |grant: &str| {
        let tools = ["memory_save", "memory_search", "memory_forget"];
        let tables =
            tools.map(|name| format!("[[tools]]\nkind = \"builtin\"\nname = \"{name}\"\n"));
        format!("[agent.policy]\ngrant = [{grant}]\n{}", tables.concat())
    };
    let calls = |name: &str, arguments: &str| {
        format!(
            "[[model]]\ntool_calls = [{{ id = \"c1\", name = \"{name}\", arguments = {arguments} }}]\n{SAYS}"
        )
    };
    let answer = |script: &str, grant: &str| {
        bench.agent(script, &tools(grant));
        bench.run(&["run", "agent.toml", "--input", "x", "--session", "s-1"]).ok();
        let events = bench.run(&["trace", "last", "--json"]).ok().json();
        let answer = events.iter().find(|event| event["type"] == "tool.responded").unwrap();
        answer["data"]["output"].clone()
    };
    let save = calls("memory_save", "{ text = \"Alice prefers euros.\" }");
    let refused = answer(&save, "");
    assert!(refused["error"].as_str().unwrap().contains("memory:write:session"), "{refused}");
    let id =
        answer(&save, "\"memory:write:*\", \"memory:read:*\"")["id"].as_str().unwrap().to_owned();
    assert_eq!(
        answer(&save, "\"memory:write:*\", \"memory:read:*\"")["id"],
        *id,
        "the same text is kept once"
    );
    let search = calls("memory_search", "{ text = \"euros\" }");
    let found = answer(&search, "\"memory:read:*\"");
    assert_eq!(
        (&found["found"][0]["id"], found["found"].as_array().unwrap().len()),
        (&id.as_str().into(), 1)
    );
    let forget = calls("memory_forget", &format!("{{ id = \"{id}\" }}"));
    assert_eq!(answer(&forget, "\"memory:write:*\", \"memory:read:*\"")["forgotten"], true);
    assert_eq!(answer(&forget, "\"memory:write:*\"")["forgotten"], false, "it is gone");
    assert_eq!(
        answer(&search, "\"memory:write:*\", \"memory:read:*\"")["found"],
        serde_json::json!([])
    );
}
