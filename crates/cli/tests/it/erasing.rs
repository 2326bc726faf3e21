//! Stores contain no text of a removed session, run or event. Each text is searched for in
//! each column of each table, and in the bytes of the files.

use crate::bench::Bench;
use crate::postgres::database;
use crate::tables_of_stores::{stores, values};

/// The texts of a session, each a unique word, with its place.
const TEXTS: [(&str, &str); 13] = [
    ("input", "quixoticinput"),
    ("answer of a call that is made once", "zephyronce"),
    ("error", "wombaterror"),
    ("large result", "vortexresult"),
    ("note of memory", "umbranote"),
    ("argument of an approved call", "talonargument"),
    ("data of an approval", "saffrondata"),
    ("who approved", "radiusperson"),
    ("label", "plinthlabel"),
    ("state of the session", "obsidianstate"),
    ("final text", "nimbusanswer"),
    ("failure of a behaviour", "lanternfailure"),
    ("session", "kestrelsession"),
];
const SESSION: &str = "kestrelsession";

/// An agent that uses everything that writes to a store.
fn bench(store: &str) -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", store);
    let call = |id: &str, tool: &str, arguments: &str| {
        format!("{{ id = \"{id}\", name = \"{tool}\", arguments = {{ {arguments} }} }}")
    };
    let calls = [
        call("c1", "pay", "invoice = 7"),
        call("c2", "memory_save", "text = \"umbranote\""),
        call("c3", "fails", ""),
        call("c4", "large", ""),
        call("c5", "asks", "about = \"talonargument\""),
    ];
    let usage = "usage = { input_tokens = 1000, output_tokens = 0 }";
    let script = format!(
        "[[model]]\ntool_calls = [{}]\n{usage}\n[[model]]\ntext = \"nimbusanswer\"\n{usage}\n",
        calls.join(", ")
    );
    let tool = |name: &str, line: &str, more: &str| {
        format!(
            "[[tools]]\nkind = \"command\"\nname = \"{name}\"\ndescription = \"d\"\n\
             command = [\"sh\", \"-c\", \"{line}\"]\n{more}\n"
        )
    };
    let asks = "approval = true\napproval_schema = { type = \"object\", properties = \
         { note = { type = \"string\" } }, required = [\"note\"] }";
    let tells = "[[behavior]]\nname = \"tell\"\non = \"run.finished\"\n\
         command = [\"sh\", \"-c\", \"echo lanternfailure >&2; exit 3\"]\n";
    bench.agent(
        &script,
        &format!(
            "[agent.policy]\ngrant = [\"process:spawn\", \"memory\"]\n\
             [agent.price]\ninput_per_mtok = 1.0\noutput_per_mtok = 1.0\n\
             [memory]\nscope = \"session\"\n\
             [[limit]]\nscope = \"session\"\nper = \"day\"\nmax_cost_usd = 1.0\n\
             {}{}{}{}[[tools]]\nkind = \"builtin\"\nname = \"memory_save\"\n{tells}",
            tool("pay", "echo zephyronce", "once = \"/invoice\""),
            tool("fails", "echo wombaterror >&2; exit 1", ""),
            tool("large", "yes vortexresult | head -c 40000", ""),
            tool("asks", "echo fine", asks),
        ),
    );
    bench
}

/// Runs the agent in the session to its end, and returns the run.
fn fill(bench: &Bench) -> String {
    let args = ["run", "agent.toml", "quixoticinput", "--session", SESSION];
    bench.run(&[&args[..], &["--label", "team=plinthlabel"]].concat()).fails(4, "waiting");
    let open = bench.run(&["approvals", "--json"]).ok().json().remove(0);
    let (id, run) = (open["id"].as_str().unwrap(), open["run"].as_str().unwrap());
    let data = "{\"note\": \"saffrondata\"}";
    bench.run(&["approve", id, "--by", "radiusperson", "--data", data]).ok();
    bench.run(&["resume", run]).ok();
    let scope = format!("session:{SESSION}");
    bench.run(&["state", "set", "note", "\"obsidianstate\"", "--scope", &scope]).ok();
    run.to_owned()
}

/// Returns the places of texts: in values of tables, and in the files of the store.
fn found(store: &str, bench: &Bench, texts: &[(&str, &str)]) -> Vec<String> {
    let mut places = values(store, bench);
    for file in bench.files() {
        if !matches!(file.extension().and_then(|end| end.to_str()), Some("toml")) {
            let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
            places.push((file.display().to_string(), text));
        }
    }
    let mut found = Vec::new();
    for (what, text) in texts {
        let holders = places.iter().filter(|(_, value)| value.contains(text));
        found.extend(holders.map(|(place, _)| format!("{what} ({text}) in {place}")));
    }
    found.dedup();
    found
}

/// Spec: S10, E10. Every text, in each table that there is.
#[test]
fn forgotten_session_leaves_no_text() {
    for store in stores() {
        let bench = bench(&store);
        fill(&bench);
        for text in &TEXTS {
            assert!(!found(&store, &bench, &[*text]).is_empty(), "{store}: {text:?} was nowhere");
        }
        bench.run(&["sessions", "forget", SESSION, "--by", "ops"]).ok();
        assert_eq!(found(&store, &bench, &TEXTS), [""; 0], "{store}");
        bench.run(&["verify"]).ok();
        bench.run(&["behaviors", "failures"]).ok();
    }
}

/// Spec: S10, T16. What was paid is not paid twice, though nothing of it is left.
#[test]
fn forgotten_call_is_not_made_again() {
    for store in stores() {
        let bench = bench(&store);
        let run = fill(&bench);
        bench.run(&["sessions", "forget", SESSION]).ok();
        bench.run(&["run", "agent.toml", "again", "--session", "other"]).fails(4, "waiting");
        let events = bench.run(&["trace", "last", "--json"]).ok().json();
        let is_paid = |event: &&serde_json::Value| {
            event["type"] == "tool.responded" && event["data"]["call_id"] == "c1"
        };
        let paid = &events.iter().find(is_paid).unwrap()["data"];
        assert_eq!(paid["done_before"]["run"], run.as_str(), "{paid}");
        assert!(!paid.to_string().contains("zephyronce"), "{paid}");
    }
}

/// Spec: S10. The session goes on: what is its own stays.
#[test]
fn deleted_run_leaves_no_text() {
    removed_run_leaves_no_text(|bench, run| {
        bench.run(&["runs", "delete", run]).ok();
    });
}

/// Spec: S10. As after a deletion.
#[test]
fn pruned_run_leaves_no_text() {
    removed_run_leaves_no_text(|bench, run| {
        let pruned = bench.run(&["runs", "prune", "--older-than", "0s", "--json"]).ok();
        assert_eq!(pruned.json()[0]["runs"], serde_json::json!([run]), "{}", pruned.out);
    });
}

fn removed_run_leaves_no_text(remove: impl Fn(&Bench, &str)) {
    let of_session =
        ["obsidianstate", "kestrelsession", "umbranote", "quixoticinput", "nimbusanswer"];
    let of_run: Vec<_> = TEXTS.into_iter().filter(|(_, text)| !of_session.contains(text)).collect();
    for store in stores() {
        let bench = bench(&store);
        let run = fill(&bench);
        remove(&bench, &run);
        assert_eq!(found(&store, &bench, &of_run), [""; 0], "{store}");
        bench.run(&["verify"]).ok();
    }
}

/// Spec: D1, T16. An answer goes with what `once` keeps of it and with what behaviours said of its run.
#[test]
fn redacted_answer_is_nowhere_else() {
    for store in stores() {
        let bench = bench(&store);
        let run = fill(&bench);
        for event in bench.run(&["trace", &run, "--json"]).ok().json() {
            let holds = |text: &str| event.to_string().contains(text);
            if holds("zephyronce") || holds("plinthlabel") {
                bench.run(&["redact", &run, &event["seq"].to_string()]).ok();
            }
        }
        let texts = [TEXTS[1], TEXTS[8], TEXTS[11]];
        assert_eq!(found(&store, &bench, &texts), [""; 0], "{store}");
        bench.run(&["verify"]).ok();
    }
}

/// Spec: D1, D9, M7. What each turn of a session leaves for the next one goes with the text, and the session goes on.
#[test]
fn redacted_text_is_in_no_transcript() {
    for store in stores() {
        let bench = Bench::new().with("BACKSTOP_STORE", &store);
        bench.agent("[[model]]\ntext = \"fine\"\n", "");
        let turn = |text: &str| bench.run(&["run", "agent.toml", text, "--session", "s"]).ok();
        for text in ["quixoticinput", "second", "third"] {
            turn(text);
        }
        let held = found(&store, &bench, &[TEXTS[0]]);
        assert!(held.iter().any(|place| place.contains("transcripts")), "{store}: {held:?}");
        let runs = bench.run(&["runs", "--json"]).ok().json();
        bench.run(&["redact", runs[2]["run"].as_str().unwrap(), "1"]).ok();
        assert_eq!(found(&store, &bench, &[TEXTS[0]]), [""; 0], "{store}");
        let warned = turn("fourth");
        assert!(
            warned.err.contains("earlier messages of the session cannot be read"),
            "{}",
            warned.err
        );
        assert_eq!(found(&store, &bench, &[TEXTS[0]]), [""; 0], "{store}");
        bench.run(&["verify", "--all"]).ok();
        bench.run(&["sessions", "forget", "s"]).ok();
        assert_eq!(found(&store, &bench, &[("turn", "second"), ("turn", "third")]), [""; 0]);
    }
}

/// Spec: J2w, S10. A run that was never begun is forgotten with its key and its task.
#[test]
fn forgotten_entry_of_a_queue_leaves_no_text() {
    let Some(store) = database() else { return };
    let bench = bench(&store);
    let args = ["enqueue", "agent.toml", "--input", "quixoticinput", "--session", SESSION];
    let more = ["--label", "team=plinthlabel", "--key", "jasperkey"];
    let texts = [TEXTS[0], TEXTS[8], TEXTS[12], ("key", "jasperkey")];
    bench.run(&[&args[..], &more].concat()).ok();
    assert!(found(&store, &bench, &[TEXTS[0]]).len() == 1);
    bench.run(&["sessions", "forget", SESSION]).ok();
    assert_eq!(found(&store, &bench, &texts), [""; 0]);
}

/// Spec: D1, S12. What the memory has of a run goes with the text.
#[test]
fn redacted_text_is_in_no_memory() {
    for (store, scope) in stores().into_iter().zip(["session", "agent"]) {
        let bench = Bench::new().with("BACKSTOP_STORE", &store);
        let memory = format!("[memory]\nkind = \"state\"\nscope = \"{scope}\"\n");
        bench.agent("[[model]]\ntext = \"fine\"\n", &memory);
        bench.run(&["run", "agent.toml", "quixoticinput", "--session", "s"]).ok();
        let redacted = bench.run(&["redact", "last", "1"]).ok();
        assert!(redacted.err.contains("the memory of the run"), "{store}: {}", redacted.err);
        assert_eq!(found(&store, &bench, &[TEXTS[0]]), [""; 0], "{store}");
        let again = bench.run(&["redact", "last", "1", "--json"]).ok().json().remove(0);
        assert_eq!(again["memory_removed"], false);
    }
}
