//! Commands that only read.

use std::io::Read;
use std::process::Stdio;

use crate::bench::Bench;

/// Spec: C3
#[test]
fn commands_that_read_create_no_file() {
    let bench = Bench::new();
    for args in [&["runs"][..], &["errors", "list"], &["codes"], &["runs", "--json"]] {
        bench.run(args).ok();
    }
    bench.run(&["trace", "run_0"]).fails(2, "no run `run_0`");
    assert!(bench.files().is_empty(), "{:?}", bench.files());

    bench.agent("[[model]]\ntext = \"ok\"\n", "[store]\nurl = \"sqlite:x.db\"\n");
    bench.run(&["run", "agent.toml"]).ok();
    let before = bench.files();
    let store = ["--store", "sqlite:x.db"];
    let run = bench.run(&[&["runs", "--json"], &store[..]].concat()).ok().json()[0]["run"].clone();
    bench.run(&[&["trace", run.as_str().unwrap()], &store[..]].concat()).ok();
    bench.run(&[&["errors", "list"], &store[..]].concat()).ok();
    assert_eq!(bench.files(), before);
}

/// Spec: C1
#[test]
fn store_of_the_environment_is_the_default() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:env.db");
    bench.agent("[[model]]\ntext = \"ok\"\n", "");
    let ran = bench.run(&["run", "agent.toml"]).ok();
    assert!(!ran.err.contains("--store"), "{}", ran.err);
    assert!(bench.path().join("env.db").exists());
    assert_eq!(bench.run(&["runs", "--json"]).ok().json().len(), 1);
}

/// Spec: E9
#[test]
fn codes_are_listed() {
    let bench = Bench::new();
    let all = bench.run(&["codes", "--json"]).ok().json();
    assert_eq!(all.len(), layer0::code::CATALOGUE.len());
    let tools = bench.run(&["codes", "tool."]).ok();
    assert!(
        tools.out.contains("tool.not_found") && !tools.out.contains("provider."),
        "{}",
        tools.out
    );
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let bench = Bench::new();
    let mut child = bench
        .command(&["codes", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

/// Spec: C1, C2
#[test]
fn help_names_every_command_and_exit_code() {
    let help = Bench::new().run(&["--help"]).ok().out;
    for word in ["run", "runs", "trace", "errors", "codes", "rehearse", "Exit codes: 0 finished"] {
        assert!(help.contains(word), "{word} is not in {help}");
    }
}

/// Spec: S10, S14
#[test]
fn errors_are_counted_and_pruned() {
    let bench = Bench::new();
    bench.run(&["errors", "prune"]).ok();
    assert!(bench.files().is_empty(), "{:?}", bench.files());
    bench.triage();
    bench.run(&["run", "triage/agent.toml"]).ok();
    let stats = bench.run(&["errors", "stats", "--json"]).ok().json();
    assert_eq!((&stats[0]["tool"], &stats[0]["code"]), (&"latency".into(), &"exit_2".into()));
    assert!(stats[0]["chars_kept"].as_u64().unwrap() > 4_000);
    let ran = bench.run(&["errors", "prune", "--rows", "0"]).ok();
    assert!(ran.out.starts_with("1 error taken away, "), "{}", ran.out);
    bench.run(&["errors", "stats"]).ok();
    assert!(bench.run(&["errors", "list", "--json"]).ok().json().is_empty());
}

/// Spec: L1, L2
#[test]
fn a_large_result_is_shown_whole() {
    let bench = Bench::new();
    bench.agent(
        "[[model]]\ntool_calls = [{ id = \"c\", name = \"big\" }]\n[[model]]\ntext = \"ok\"\n",
        "[[tools]]\nkind = \"command\"\nname = \"big\"\ndescription = \"d\"\ncapabilities = []\n\
         command = [\"sh\", \"-c\", \"yes line | head -n 5000\"]\n",
    );
    let report = bench.run(&["run", "agent.toml", "--json"]).ok().json().remove(0);
    let stored =
        report["events"].as_array().unwrap().iter().find(|event| event["type"] == "result.stored");
    let id = stored.unwrap()["data"]["result_id"].as_str().unwrap();
    assert_eq!(
        bench.run(&["results", "show", id]).ok().out,
        format!("{}\n", "line\n".repeat(5_000))
    );
    bench.run(&["results", "show", "res_0"]).fails(2, "no result `res_0`");
}
