//! Ids by a unique prefix, and as `last`.

use crate::bench::Bench;
use crate::running::{ASKS, REFUNDS};

/// A bench with two runs, each with an error and a large result, and the ids of the runs, the older one first.
fn bench() -> (Bench, [String; 2]) {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(
        "[[model]]\ntool_calls = [{ id = \"c1\", name = \"fails\" }, { id = \"c2\", name = \"big\" }]\n\
         [[model]]\ntext = \"ok\"\n",
        "[[tools]]\nkind = \"command\"\nname = \"fails\"\ndescription = \"d\"\ncapabilities = []\n\
         command = [\"sh\", \"-c\", \"date +%N >&2; exit 3\"]\n\
         [[tools]]\nkind = \"command\"\nname = \"big\"\ndescription = \"d\"\ncapabilities = []\n\
         command = [\"sh\", \"-c\", \"yes line | head -n 5000\"]\n",
    );
    let run = || {
        let report = bench.run(&["run", "agent.toml", "--json"]).ok().json().remove(0);
        report["run"].as_str().unwrap().to_owned()
    };
    let runs = [run(), run()];
    (bench, runs)
}

/// Returns the shortest prefix of an id that another id does not have.
fn beginning<'a>(id: &'a str, other: &str) -> &'a str {
    let same = id.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    &id[..=same]
}

/// Spec: C2
#[test]
fn a_run_is_found_by_its_beginning() {
    let (bench, [older, newer]) = bench();
    let short = beginning(&older, &newer);
    for args in [
        &["trace", short][..],
        &["replay", short],
        &["verify", short],
        &["resume", short],
        &["errors", "list", "--run", short],
        &["results", "list", "--run", short],
        &["fork", short, "--at", "4"],
    ] {
        bench.run(args).ok();
    }
    let verified = bench.run(&["verify", short]).ok().out;
    assert!(verified.starts_with(&format!("{older}: ")), "{verified}");
    let of_run = bench.run(&["errors", "list", "--run", short, "--json"]).ok().json();
    assert_eq!((of_run.len(), &of_run[0]["run"]), (1, &older.as_str().into()));
    let parted = bench.run(&["diff", short, "last", "--json"]).ok().json().remove(0);
    assert_eq!(parted["runs"][0], *older);
    bench.run(&["runs", "delete", short]).ok();
    assert!(!bench.run(&["runs"]).ok().out.contains(&older));
}

/// Spec: C2
#[test]
fn last_is_what_was_recorded_last() {
    let (bench, [_, newer]) = bench();
    let verified = bench.run(&["verify", "last"]).ok().out;
    assert!(verified.starts_with(&format!("{newer}: ")), "{verified}");
    let listed = bench.run(&["errors", "list", "--json"]).ok().json();
    let shown = bench.run(&["errors", "show", "last", "--json"]).ok().json();
    assert_eq!((listed.len(), &shown[0]["id"]), (2, &listed[0]["id"]));
    let listed = bench.run(&["results", "list", "--json"]).ok().json();
    let shown = bench.run(&["results", "show", "last", "--json"]).ok().json();
    assert_eq!(shown[0]["id"], listed[0]["id"]);
    assert_eq!(shown[0]["run"], *newer);
}

/// Spec: C2
#[test]
fn ambiguous_and_unknown_ids_name_candidates() {
    let (bench, [older, newer]) = bench();
    for args in [&["trace", "run_"][..], &["cancel", "run_"], &["redact", "run_", "1"]] {
        let ran = bench.run(args).fails(2, "error: `run_` is not one run but several\n");
        let hint = format!("hint: runs that begin so: {newer}, {older}\n");
        assert!(ran.err.contains(&hint), "{}", ran.err);
    }
    let ran = bench.run(&["trace", "nonsense"]).fails(2, "error: no run `nonsense`\n");
    let hint = format!("hint: the newest runs are: {newer}, {older}; `backstop runs` lists");
    assert!(ran.err.contains(&hint), "{}", ran.err);
    for (args, unknown) in [
        (&["errors", "show", "x"][..], "no error `x`"),
        (&["results", "show", "x"], "no result `x`"),
        (&["errors", "list", "--run", "x"], "no run `x`"),
    ] {
        let ran = bench.run(args).fails(2, unknown);
        assert!(ran.err.contains("the newest "), "{}", ran.err);
    }
    bench.run(&["errors", "show", "err_"]).fails(2, "`err_` is not one error but several");
    bench.run(&["results", "show", "res_"]).fails(2, "`res_` is not one result but several");
    bench.run(&["fork", "last", "--at", "99"]).fails(2, "has no event 99");
}

#[test]
fn last_of_nothing_is_unknown() {
    let bench = Bench::new();
    bench.run(&["trace", "last"]).fails(2, "no run `last`");
    bench.run(&["errors", "show", "last"]).fails(2, "no error `last`");
    bench.run(&["approve", "last", "--by", "ada"]).fails(2, "no open approval `last`");
    assert!(bench.files().is_empty());
}

/// A dispatched run is no run of the user.
#[test]
fn approvals_are_found_likewise() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(REFUNDS, ASKS.strip_prefix("[store]\nurl = \"sqlite:x.db\"\n").unwrap());
    let open = || {
        bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval: apr_");
        let open = bench.run(&["approvals", "--json"]).ok().json();
        open.iter().map(|open| open["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    open();
    let ids = open();
    let several = bench.run(&["approve", "apr_", "--by", "ada"]);
    let several = several.fails(2, "`apr_` is not one approval but several");
    assert!(several.err.contains(&ids[0]) && several.err.contains(&ids[1]), "{}", several.err);
    let short = beginning(&ids[0], &ids[1]);
    let denied = bench.run(&["deny", short, "--by", "ada", "--reason", "no"]).ok();
    assert!(denied.err.contains(&format!("{} denied by ada", ids[0])), "{}", denied.err);
    let approved = bench.run(&["approve", "last", "--by", "ada"]).ok();
    assert!(approved.err.contains(&format!("{} approved by ada", ids[1])), "{}", approved.err);
    bench.run(&["approve", &ids[1], "--by", "ada"]).fails(2, "no open approval");
}

/// Spec: D7, C2. A fork begins when it is made, however old the run is that it copies.
#[test]
fn fork_is_the_last_run() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent("[[model]]\ntext = \"ok\"\n", "");
    let run = |args: &[&str]| {
        let ran = bench.run(&[args, &["--json"]].concat()).ok().json();
        ran[0]["run"].as_str().unwrap().to_owned()
    };
    let first = run(&["run", "agent.toml"]);
    run(&["run", "agent.toml"]);
    let fork = run(&["fork", &first, "--at", "1"]);
    let runs = bench.run(&["runs", "--json"]).ok().json();
    assert_eq!(runs[0]["run"], *fork);
    assert!(runs[0]["started_at"].as_str() > runs[1]["started_at"].as_str(), "{runs:?}");
    assert_eq!(bench.run(&["resume", "last", "--json"]).ok().json()[0]["run"], *fork);
    bench.run(&["verify"]).ok();
}
