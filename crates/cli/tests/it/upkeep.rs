//! Maintenance of a store: `runs prune`, `runs delete`, `sessions forget`, `backup`, `vacuum`, `verify`.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::bench::{Bench, Ran};
use crate::running::{ASKS, REFUNDS};
use crate::sqlite;

/// The commands with their arguments; `run_0` and `s-0` do not exist.
const COMMANDS: [&[&str]; 7] = [
    &["runs", "prune", "--older-than", "0s"],
    &["runs", "delete", "run_0"],
    &["sessions", "forget", "s-0"],
    &["backup", "copy.db"],
    &["vacuum"],
    &["verify"],
    &["verify", "run_0"],
];

const TOOL: &str = "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\n\
                    name = \"t\"\ndescription = \"d\"\n";
const CALLS: &str = "[[model]]\ntool_calls = [{ id = \"c1\", name = \"t\" }]\n";

fn bench() -> Bench {
    Bench::new().with("BACKSTOP_STORE", "sqlite:x.db")
}

/// Runs an agent in a session and returns the id of its run.
fn run(bench: &Bench, session: &str) -> String {
    let ran = bench.run(&["run", "agent.toml", "--session", session, "--json"]);
    ran.json()[0]["run"].as_str().unwrap_or_else(|| panic!("{}", ran.err)).to_owned()
}

fn says(bench: &Bench) {
    bench.agent("[[model]]\ntext = \"ok\"\n", "");
}

/// Writes an agent whose tool fails, and then its model.
fn fails(bench: &Bench) {
    let script = format!("{CALLS}[[model]]\nerror = {{ kind = \"invalid_request\" }}\n");
    bench.agent(&script, &format!("{TOOL}command = [\"false\"]\n"));
}

fn waits(bench: &Bench) {
    bench.agent(REFUNDS, ASKS);
}

/// Starts a run that continues until it is cancelled.
fn live(bench: &Bench) -> (Child, String) {
    let command = "command = [\"sh\", \"-c\", \"touch begun; sleep 300\"]\n";
    bench.agent(&format!("{CALLS}[[model]]\ntext = \"ok\"\n"), &format!("{TOOL}{command}"));
    let mut command = bench.command(&["run", "agent.toml", "--session", "live"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !bench.path().join("begun").exists() {
        std::thread::yield_now();
    }
    let runs = bench.run(&["runs", "--session", "live", "--json"]).ok().json();
    (child, runs[0]["run"].as_str().unwrap().to_owned())
}

fn runs(bench: &Bench) -> Vec<String> {
    let runs = bench.run(&["runs", "--json"]).ok().json();
    runs.iter().map(|run| run["run"].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn says_only(ran: Ran, out: &str) {
    let ran = ran.ok();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), (out, ""));
}

#[track_caller]
fn gives(ran: Ran, object: &Value) {
    let ran = ran.ok();
    assert_eq!((ran.json(), ran.err.as_str()), (vec![object.clone()], ""));
}

/// With `--json`, an error is JSON.
#[track_caller]
fn refuses_as_json(ran: Ran, code: i32, error: &str, hint: &str) {
    let ran = ran.fails(code, "");
    assert_eq!(ran.out, "");
    let said: Value = serde_json::from_str(&ran.err).unwrap();
    let expected = json!({ "code": "input.invalid", "message": error, "hint": hint, "retry": "never",
        "retry_after_ms": null, "effect": "none", "exit": code });
    assert_eq!(said, expected);
}

#[track_caller]
fn refuses(ran: Ran, code: i32, error: &str, hint: &str) {
    let ran = ran.fails(code, "");
    assert_eq!(ran.out, "");
    assert_eq!(ran.err, format!("error: {error}\n  hint: {hint}\n"));
}

const THERE_ARE: &str = "`backstop runs` lists the runs of the store";
const NO_STORE: &str = "run an agent first, or name another store with --store URL";
const OPEN: &str = "wait for it, decide what it waits for (`backstop approvals`), or stop it \
                    (`backstop cancel`)";

/// Spec: S10, C3
#[test]
fn prune_reports_the_finished_runs_it_took() {
    let bench = bench();
    says(&bench);
    let (first, second) = (run(&bench, "s-1"), run(&bench, "s-1"));
    fails(&bench);
    let failed = run(&bench, "s-2");
    waits(&bench);
    let open = run(&bench, "s-3");

    let prune = |more: &[&str]| bench.run(&[&["runs", "prune", "--older-than"], more].concat());
    says_only(prune(&["1d"]), "0 runs taken away, 0 errors, 0 results\n");
    let nothing = json!({ "runs": [], "errors": 0, "results": 0 });
    gives(prune(&["1d", "--json"]), &nothing);
    says_only(prune(&["0s", "--state", "failed"]), "1 run taken away, 1 error, 0 results\n");
    assert!(!runs(&bench).contains(&failed));
    let removed = json!({ "runs": [second, first], "errors": 0, "results": 0 });
    gives(prune(&["0s", "--state", "failed", "--state", "finished", "--json"]), &removed);
    assert_eq!(runs(&bench), [open], "an open run stays");
    for age in ["30", "d", "-1d", "1.5d", "30 d", "99999999999999999d", ""] {
        let refused = prune(&[age]).fails(2, "--older-than");
        assert_eq!(refused.out, "", "{age}");
    }
    prune(&["1d", "--state", "open"]).fails(2, "[possible values: finished, failed]");
    bench.run(&["runs", "prune"]).fails(2, "--older-than <AGE>");
}

/// Spec: S10, C3
#[test]
fn delete_takes_the_last_run_of_a_session() {
    let bench = bench();
    fails(&bench);
    let (first, second) = (run(&bench, "s-1"), run(&bench, "s-1"));
    waits(&bench);
    let open = run(&bench, "s-2");

    let delete = |run: &str, more: &[&str]| bench.run(&[&["runs", "delete", run], more].concat());
    let followed = format!("run `{first}` is followed by `{second}`");
    let hint = "delete from the end of the session, or forget it: `backstop sessions forget`";
    refuses(delete(&first, &[]), 2, &followed, hint);
    let refused = delete(&open, &["--json"]).fails(2, &format!("run `{open}` is open"));
    assert!(refused.err.starts_with("{\"code\":\"run.open\""), "{}", refused.err);
    delete("run_x", &[]).fails(2, "error: no run `run_x`\n  hint: the newest runs are: ");
    delete(" ", &[]).fails(2, "it must not be empty");
    // The error of both runs is one error of the session.
    says_only(delete(&second, &[]), "1 run taken away, 0 errors, 0 results\n");
    gives(
        delete(&first, &["--json"]),
        &json!({ "runs": [first.clone()], "errors": 1, "results": 0 }),
    );
    delete(&first, &[]).fails(2, &format!("error: no run `{first}`\n"));
    bench.run(&["trace", &first]).fails(2, "no run");
}

/// Spec: S10, C3
#[test]
fn forget_takes_a_session_and_names_its_copies() {
    let bench = bench();
    says(&bench);
    let (first, second) = (run(&bench, "s-1"), run(&bench, "s-1"));
    let forked = bench.run(&["fork", &second, "--at", "4", "--json"]).ok().json().remove(0);
    waits(&bench);
    let open = run(&bench, "s-2");

    let forget = |session: &str, more: &[&str]| {
        bench.run(&[&["sessions", "forget", session], more].concat())
    };
    refuses(forget("s-2", &[]), 2, &format!("run `{open}` is open"), OPEN);
    refuses_as_json(forget("s-0", &["--json"]), 2, "no session `s-0`", THERE_ARE);
    forget("", &[]).fails(2, "it must not be empty");
    forget("s-1", &["--by", " "]).fails(2, "it must not be empty");

    let fork = json!({ "run": forked["run"], "session": forked["session"] });
    let mut forgotten = forget("s-1", &["--by", "ada", "--json"]).ok().json().remove(0);
    assert!(forgotten["at"].take().as_str().unwrap().ends_with('Z'));
    let expected = json!({
        "session": "s-1", "by": "ada", "at": null, "runs": [second, first], "errors": 0,
        "results": 0, "forks": [fork],
    });
    assert_eq!(forgotten, expected);
    refuses(forget("s-1", &[]), 2, "no session `s-1`", THERE_ARE);

    let copied = forked["run"].as_str().unwrap();
    let copy = bench.run(&["fork", copied, "--at", "4", "--json"]).ok().json().remove(0);
    let session = forked["session"].as_str().unwrap();
    let named = forget(session, &[]).ok();
    assert_eq!(named.out, "1 run taken away, 0 errors, 0 results\n");
    let holds = format!(
        "{} of session {} holds a copy\n  hint: --with-forks takes those sessions too\n",
        copy["run"].as_str().unwrap(),
        copy["session"].as_str().unwrap()
    );
    assert_eq!(named.err, holds);
}

/// Spec: S10
#[test]
fn forget_takes_copies_along_where_it_is_told() {
    let bench = bench();
    says(&bench);
    let first = run(&bench, "s-1");
    bench.run(&["fork", &first, "--at", "4"]).ok();
    let all = bench.run(&["sessions", "forget", "s-1", "--with-forks"]);
    says_only(all, "2 runs taken away, 0 errors, 0 results\n");
    assert_eq!(runs(&bench), [""; 0]);
    says_only(bench.run(&["verify"]), "0 runs verified, 0 cannot be trusted\n");
}

/// Spec: C3
#[test]
fn backup_is_a_store_for_one_reader() {
    let bench = bench();
    says(&bench);
    let first = run(&bench, "s-1");
    let backup = |file: &str, more: &[&str]| bench.run(&[&["backup", file], more].concat());
    let size = |file: &str| bench.path().join(file).metadata().unwrap().len();
    let told = backup("copy.db", &[]);
    says_only(told, &format!("copy.db: {} bytes\n", size("copy.db")));
    gives(
        backup("other.db", &["--json"]),
        &json!({ "file": "other.db", "bytes": size("copy.db") }),
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = bench.path().join("copy.db").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let verified = bench.run(&["verify", &first, "--store", "sqlite:copy.db"]);
    says_only(verified, &format!("{first}: 5 events, sound\n"));

    for there in ["x.db", "copy.db", "agent.toml", "."] {
        let error = format!("`{there}` is there already");
        refuses(backup(there, &[]), 2, &error, "name a file that is not there");
    }
    let folder = "name a file in a folder that exists and that you may write to";
    for (file, why) in [
        ("none/copy.db", "No such file or directory (os error 2)"),
        ("agent.toml/copy.db", "Not a directory (os error 20)"),
    ] {
        refuses(backup(file, &[]), 2, &format!("`{file}` cannot be written: {why}"), folder);
    }
    backup("", &[]).fails(2, "<FILE>");
    let memory = "store `sqlite::memory:` has nothing to copy";
    let hint = "name another store with --store URL";
    refuses(backup("new.db", &["--store", "sqlite::memory:"]), 2, memory, hint);
    let files = bench.files();
    let names = files.iter().filter_map(|file| file.file_name()?.to_str());
    let left: Vec<&str> = names.filter(|name| name.starts_with(".tmp")).collect();
    assert_eq!(left, [""; 0]);
}

/// SQLite would accept such a file as its own.
#[test]
fn backup_never_overwrites_a_file_of_a_store() {
    let bench = bench();
    says(&bench);
    let first = run(&bench, "s-1");
    for own in ["x.db-wal", "x.db-shm", "x.db-journal", "./x.db-wal"] {
        assert!(!bench.path().join(own).exists(), "{own} is there when it is in use");
        let error = format!("`{own}` belongs to the store itself");
        refuses(bench.run(&["backup", own]), 2, &error, "name another file");
    }
    assert_eq!(runs(&bench), [first]);
}

/// Spec: C3
#[test]
fn vacuum_reports_sizes_before_and_after() {
    let bench = bench();
    bench.agent(&format!("[[model]]\ntext = \"{}\"\n", "x".repeat(300_000)), "");
    run(&bench, "s-1");
    bench.run(&["sessions", "forget", "s-1"]).ok();
    let done = bench.run(&["vacuum", "--json"]).ok().json().remove(0);
    let (before, after) = (&done["bytes_before"], &done["bytes_after"]);
    assert!(after.as_u64() <= before.as_u64(), "{done}");
    assert_eq!(done.as_object().unwrap().len(), 2, "{done}");
    let size = bench.path().join("x.db").metadata().unwrap().len();
    assert_eq!(*after, size);
    says_only(bench.run(&["vacuum"]), &format!("{size} bytes before, {size} bytes now\n"));
}

/// Spec: D13, C3
#[test]
fn verify_reports_each_run_and_exits_6() {
    let bench = bench();
    says(&bench);
    let (first, second) = (run(&bench, "s-1"), run(&bench, "s-1"));
    says_only(bench.run(&["verify", &first]), &format!("{first}: 5 events, sound\n"));
    let both = format!(
        "{second}: 5 events, sound\n{first}: 5 events, sound\n2 runs verified, 0 cannot be trusted\n"
    );
    says_only(bench.run(&["verify"]), &both);
    says_only(bench.run(&["verify", "--all"]), &both);
    let last = &bench.run(&["trace", &first, "--json"]).ok().json()[4];
    let sound = json!({
        "run": first, "ok": true, "events": 5, "head": last["hash"], "key_id": null,
        "erased": [], "code": null, "message": null,
        "unchecked": { "row": false, "erasures": [] },
    });
    gives(bench.run(&["verify", &first, "--json"]), &sound);
    let newest = bench.run(&["runs", "--json"]).ok().json();
    let newest: Vec<&str> = newest.iter().map(|run| run["run"].as_str().unwrap()).collect();
    let hint = format!("the newest runs are: {}; {THERE_ARE}", newest.join(", "));
    refuses(bench.run(&["verify", "run_x"]), 2, "no run `run_x`", &hint);
    refuses_as_json(bench.run(&["verify", "run_x", "--json"]), 2, "no run `run_x`", &hint);
    bench.run(&["verify", " "]).fails(2, "it must not be empty");
    bench.run(&["verify", &first, "--all"]).fails(2, "cannot be used with");

    let changed = format!(
        "UPDATE events SET data = replace(data, 'ok', 'no') WHERE type = 'model.responded' \
         AND run_id = (SELECT id FROM runs WHERE run = '{second}')"
    );
    sqlite::execute(&bench.path().join("x.db"), &changed);
    let broken = "hash chain broken at seq 4";
    let ran = bench.run(&["verify"]).fails(6, "");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].starts_with(&format!("{second}: log.tampered: {broken}")), "{}", ran.out);
    let rest = [&format!("{first}: 5 events, sound")[..], "2 runs verified, 1 cannot be trusted"];
    assert_eq!((&lines[1..], ran.err.as_str()), (&rest[..], ""));
    let told = bench.run(&["verify", &second, "--json"]).fails(6, "").json().remove(0);
    assert!(told["message"].as_str().unwrap().contains(broken), "{told}");
    assert_eq!(
        (&told["run"], &told["ok"], &told["events"], &told["head"], &told["code"]),
        (&json!(second), &json!(false), &json!(null), &json!(null), &json!("log.tampered"))
    );
}

/// Spec: C4. Where no store is named and none was made, there is nothing; where one is named, it is
/// missing.
#[test]
fn absent_store_is_not_created() {
    let bench = Bench::new();
    let check = |args: &[&str], out: &str, err: &str| says_nothing_of(&bench, args, out, err);
    let place = bench.path().join("data/backstop/backstop.db");
    let none = format!("no runs in sqlite:{}\n", place.display());
    check(COMMANDS[0], "0 runs taken away, 0 errors, 0 results\n", "");
    refuses(bench.run(COMMANDS[1]), 2, "no run `run_0`", THERE_ARE);
    refuses(bench.run(COMMANDS[2]), 2, "no session `s-0`", THERE_ARE);
    let missing = format!("no database at `{}`", place.display());
    refuses(bench.run(COMMANDS[3]), 5, &missing, NO_STORE);
    check(COMMANDS[4], "0 bytes before, 0 bytes now\n", "");
    check(COMMANDS[5], "", &none);
    refuses(bench.run(COMMANDS[6]), 2, "no run `run_0`", THERE_ARE);
    for command in COMMANDS {
        let ran = bench.run(&[command, &["--store", "sqlite:none.db"]].concat());
        refuses(ran, 5, "no database at `none.db`", NO_STORE);
    }
    assert!(bench.files().is_empty(), "{:?}", bench.files());
}

fn says_nothing_of(bench: &Bench, args: &[&str], out: &str, err: &str) {
    let ran = bench.run(args).ok();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), (out, err), "{args:?}");
}

/// Spec: C3
#[test]
fn a_store_of_another_version_is_left_alone() {
    let bench = bench();
    says(&bench);
    run(&bench, "s-1");
    let store = bench.path().join("x.db");
    let check = |error: &str, hint: &str| {
        let before = std::fs::read(&store).unwrap();
        for command in COMMANDS {
            refuses(bench.run(command), 5, error, hint);
        }
        assert!(std::fs::read(&store).unwrap() == before, "it was written to");
        assert!(!bench.path().join("copy.db").exists());
    };
    sqlite::execute(&store, "PRAGMA user_version = 99");
    let newer = "`x.db` has schema version 99, this version knows up to 25";
    check(newer, "use the version that wrote it, or a later one");
    sqlite::execute(&store, "PRAGMA application_id = 7");
    check("`x.db` is a database of another program", "name another file with --store sqlite:PATH");
}

/// Spec: S10. A run that another process runs is kept, and read.
#[test]
fn a_run_that_another_process_runs_is_kept() {
    let bench = bench();
    let (mut child, running) = live(&bench);
    let error = format!("run `{running}` is open");
    refuses(bench.run(&["runs", "delete", &running]), 2, &error, OPEN);
    refuses(bench.run(&["sessions", "forget", "live"]), 2, &error, OPEN);
    let pruned = bench.run(&["runs", "prune", "--older-than", "0s"]);
    says_only(pruned, "0 runs taken away, 0 errors, 0 results\n");
    let verified = bench.run(&["verify", &running]).ok().out;
    assert!(verified.ends_with(" events, sound\n"), "{verified}");
    bench.run(&["backup", "copy.db"]).ok();
    bench.run(&["vacuum"]).ok();
    let copied = bench.run(&["verify", &running, "--store", "sqlite:copy.db"]).ok().out;
    assert_eq!(copied, verified);
    bench.run(&["cancel", &running]).ok();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    gives(
        bench.run(&["runs", "delete", &running, "--json"]),
        &json!({ "runs": [running], "errors": 0, "results": 0 }),
    );
}

/// Spec: S10, C2. What would be removed is listed, and stays; what would be refused is refused.
#[test]
fn dry_runs_list_what_would_go() {
    let bench = bench();
    says(&bench);
    let (first, second) = (run(&bench, "s-1"), run(&bench, "s-1"));
    waits(&bench);
    let open = run(&bench, "s-2");
    let before = bench.run(&["verify", "--all", "--json"]).ok().out;
    let plan = |runs: &[&String]| json!({ "dry_run": true, "runs": runs });
    let prune = ["runs", "prune", "--older-than", "0s", "--dry-run"];
    gives(bench.run(&[&prune[..], &["--json"]].concat()), &plan(&[&second, &first]));
    let ran = bench.run(&prune).ok();
    assert_eq!(ran.out, format!("{second}\n{first}\n"));
    assert_eq!(ran.err, "2 runs would be removed; nothing was\n");
    let failed =
        ["runs", "prune", "--older-than", "0s", "--state", "failed", "--dry-run", "--json"];
    gives(bench.run(&failed), &plan(&[]));
    gives(bench.run(&["runs", "delete", &second, "--dry-run", "--json"]), &plan(&[&second]));
    bench.run(&["runs", "delete", &open, "--dry-run"]).fails(2, "is open");
    let forget = |session: &str| bench.run(&["sessions", "forget", session, "--dry-run", "--json"]);
    gives(forget("s-1"), &plan(&[&second, &first]));
    forget("s-2").fails(2, "is open");
    forget("s-3").fails(2, "s-3");
    assert_eq!(bench.run(&["verify", "--all", "--json"]).ok().out, before);
    assert_eq!(runs(&bench), [open, second, first]);
}
