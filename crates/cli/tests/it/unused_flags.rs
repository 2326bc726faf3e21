//! Flags that have no effect in their place.

use crate::bench::Bench;
use crate::running::{ASKS, REFUNDS};

const TWO: &str =
    "[[model]]\ntext = \"half\"\nstop_reason = \"max_tokens\"\n[[model]]\ntext = \"whole\"\n";

/// Spec: C2, D7
#[test]
fn flags_without_effect_are_named() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(TWO, "");
    bench.run(&["run", "agent.toml"]).fails(3, "incomplete");
    bench.run(&["resume", "last", "--agent", "nope.toml"]).fails(2, "nope.toml: cannot be read");
    bench
        .run(&["resume", "last", "--agent", "agent.toml"])
        .fails(3, "--agent was not used: only `--reopen` goes on with a run that is over");
    bench
        .run(&["fork", "last", "--at", "1", "--model", "m-2"])
        .fails(2, "--model: the answers of the agent come from a script");
    bench
        .run(&["fork", "last", "--at", "1", "--budget", "max_model_calls=+3"])
        .fails(2, "is open at event 1: it takes no more budget");
    assert_eq!(bench.run(&["runs", "--json"]).ok().json().len(), 1, "nothing was copied");
    for moment in ["2026-01-31T08:00:00+25:00", "2026-01-31T08:00:00-24:30"] {
        bench.run(&["runs", "--since", moment]).fails(2, "is no moment");
    }
    bench.run(&["runs", "--since", "2026-01-31T08:00:00+14:00"]).ok();
}

/// Spec: A1, C2. Where nobody sees which one is meant, none is.
#[test]
fn last_of_several_approvals_is_refused() {
    let bench = Bench::new();
    bench.agent(REFUNDS, ASKS);
    for _ in 0..2 {
        bench.run(&["run", "agent.toml", "--store", "sqlite:x.db"]).fails(4, "waiting");
    }
    let decide =
        |command: &str| bench.run(&[command, "last", "--by", "ada", "--store", "sqlite:x.db"]);
    decide("approve").fails(2, "2 approvals are open");
    decide("deny").ok();
    decide("approve").ok();
}

/// Spec: A3. A program gets the data in a variable, which has a bound.
#[test]
fn long_data_leaves_the_approval_open() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(
        "[[model]]\ntool_calls = [{ id = \"c1\", name = \"note\" }]\n[[model]]\ntext = \"done\"\n",
        "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\nname = \"note\"\n\
         description = \"d\"\ncommand = [\"sh\", \"-c\", \"printf %s \\\"$BACKSTOP_APPROVAL_DATA\\\" | wc -c\"]\n\
         approval = true\napproval_schema = { type = \"string\" }\n",
    );
    bench.run(&["run", "agent.toml"]).fails(4, "waiting");
    let approve = |bytes: usize| {
        bench.write("data.json", &format!("\"{}\"", "x".repeat(bytes - 2)));
        bench.run(&["approve", "last", "--by", "ada", "--data", "@data.json"])
    };
    approve(200_000).fails(2, "it has 200000 bytes, and at most 65536 reach a tool");
    approve(65_536).ok();
    bench.run(&["resume", "last"]).ok();
    let events = bench.run(&["trace", "last", "--json"]).ok().json();
    let answered = events.iter().find(|event| event["type"] == "tool.responded").unwrap();
    assert_eq!(answered["data"]["output"].as_str().unwrap().trim(), "65536");
}

/// Spec: D5, C2. The record names the folder by its bytes.
#[cfg(target_os = "linux")]
#[test]
fn folder_without_utf8_is_found_again() {
    use std::os::unix::ffi::OsStrExt;

    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let folder = bench.path().join(std::ffi::OsStr::from_bytes(b"d\xff"));
    std::fs::create_dir(&folder).unwrap();
    bench.agent(TWO, "");
    for file in ["agent.toml", "script.toml"] {
        std::fs::rename(bench.path().join(file), folder.join(file)).unwrap();
    }
    let mut command = bench.command(&["run"]);
    assert_eq!(command.arg(folder.join("agent.toml")).status().unwrap().code(), Some(3));
    bench.run(&["resume", "last", "--reopen"]).ok();
    let forked = bench.run(&["fork", "last", "--at", "1"]).fails(3, "incomplete");
    assert_eq!(forked.out, "half\n");
}
