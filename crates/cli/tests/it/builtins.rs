//! The built-in tools of an agent file, from the file to their effects.

use backstop_testkit::{Loopback, Reply};

use crate::bench::Bench;

/// Calls one tool, then answers.
fn script(tool: &str, arguments: &str) -> String {
    format!(
        "[[model]]\ntool_calls = [{{ id = \"c1\", name = \"{tool}\", arguments = {arguments} }}]\n\
         [[model]]\ntext = \"done\"\n"
    )
}

fn file(tool: &str, more: &str, grant: &str) -> String {
    format!(
        "[[tools]]\nkind = \"builtin\"\nname = \"{tool}\"\n{more}\n[agent.policy]\ngrant = [{grant}]\n"
    )
}

fn bench(tool: &str, arguments: &str, more: &str, grant: &str) -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(&script(tool, arguments), &file(tool, more, grant));
    bench
}

/// Returns the tool result that the model got.
fn answer(bench: &Bench) -> serde_json::Value {
    let events = bench.run(&["trace", &run_id(bench), "--json"]).ok().json();
    let answered = events.into_iter().find(|event| event["type"] == "tool.responded");
    answered.unwrap()["data"]["output"].clone()
}

fn run_id(bench: &Bench) -> String {
    let run = bench.run(&["runs", "--json"]).ok().json().remove(0);
    run["run"].as_str().unwrap().to_owned()
}

/// Spec: N4, A1
#[test]
fn a_write_is_approved_by_its_diff() {
    let arguments = "{ path = \"out/a.txt\", content = \"one\\n2\\n\" }";
    let bench = bench("fs_write", arguments, "", "\"fs:write:./out/**\"");
    std::fs::create_dir(bench.path().join("out")).unwrap();
    bench.write("out/a.txt", "one\ntwo\n");
    let waiting = bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval: apr_");
    let listed = bench.run(&["approvals"]).ok();
    for shown in [&waiting.err, &listed.out] {
        let diff = "  | --- out/a.txt\n  | +++ out/a.txt\n  | @@ -1,2 +1,2 @@\n  |  one\n  | -two\n  | +2\n";
        assert!(shown.contains(diff), "{shown}");
    }
    let open = bench.run(&["approvals", "--json"]).ok().json().remove(0);
    assert_eq!(open["arguments"]["content"], "one\n2\n");
    assert!(open["arguments"]["diff"].as_str().unwrap().ends_with("-two\n+2\n"));
    bench.run(&["approve", open["id"].as_str().unwrap(), "--by", "ada"]).ok();
    bench.run(&["resume", &run_id(&bench)]).ok();
    assert_eq!(std::fs::read_to_string(bench.path().join("out/a.txt")).unwrap(), "one\n2\n");
    bench.run(&["replay", &run_id(&bench)]).ok();
}

/// Spec: N4, A4. Other arguments are shown by a diff of their own, and are bound to the file as it was shown.
#[test]
fn changed_write_keeps_diff_and_check() {
    let arguments = "{ path = \"out/a.txt\", content = \"one\\n2\\n\" }";
    let bench = bench("fs_write", arguments, "", "\"fs:write:./out/**\"");
    std::fs::create_dir(bench.path().join("out")).unwrap();
    let file = bench.path().join("out/a.txt");
    let changed = r#"{"path": "out/a.txt", "content": "one\nTWO\n"}"#;
    let approve = |changed| bench.run(&["approve", "last", "--by", "ada", "--arguments", changed]);

    bench.write("out/a.txt", "one\ntwo\n");
    bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval: apr_");
    bench.write("out/a.txt", "another's\n");
    approve(changed).fails(2, "the file is not as it was shown");
    let respelled = r#"{"path": "./out/../out/a.txt", "content": "one\nTWO\n"}"#;
    approve(respelled).fails(2, "the file is not as it was shown");
    bench.write("out/a.txt", "one\ntwo\n");
    let outside = r#"{"path": "../a.txt", "content": "x"}"#;
    approve(outside).fails(2, "other arguments for `fs_write`: ");
    approve(changed).ok();
    let events = bench.run(&["trace", &run_id(&bench), "--json"]).ok().json();
    let granted = events.iter().find(|event| event["type"] == "approval.granted");
    assert!(granted.is_none(), "it is recorded by who goes on");
    // The approval is bound to the file until the write.
    bench.write("out/a.txt", "another's\n");
    bench.run(&["resume", &run_id(&bench)]).ok();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "another's\n");
    let events = bench.run(&["trace", &run_id(&bench), "--json"]).ok().json();
    let of = |kind: &str| &events.iter().find(|event| event["type"] == kind).unwrap()["data"];
    let granted = &of("approval.granted")["arguments"];
    assert!(granted["diff"].as_str().unwrap().ends_with("-two\n+TWO\n"), "{granted}");
    assert_eq!(of("tool.responded")["error"]["code"], "CHANGED");

    bench.write("out/a.txt", "one\ntwo\n");
    bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval: apr_");
    approve(changed).ok();
    bench.run(&["resume", &run_id(&bench)]).ok();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\nTWO\n");
}

/// Spec: N4, A1. A person agrees to a file below a link, which is turned before the run goes on.
#[cfg(unix)]
#[test]
fn approved_write_follows_no_turned_link() {
    let arguments = "{ path = \"link/f.txt\", content = \"hello\" }";
    let bench = bench("fs_write", arguments, "", "\"fs:write:./a/**\", \"fs:write:./b/**\"");
    let turn = |to: &str| {
        let link = bench.path().join("link");
        drop(std::fs::remove_file(&link));
        std::os::unix::fs::symlink(to, link).unwrap();
    };
    for folder in ["a", "b"] {
        std::fs::create_dir(bench.path().join(folder)).unwrap();
    }
    turn("a");
    bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval: apr_");
    let open = bench.run(&["approvals", "--json"]).ok().json().remove(0);
    assert!(open["arguments"]["file"].as_str().unwrap().ends_with("/a/f.txt"), "{open}");
    turn("b");
    // The same path in other arguments is bound too.
    let other = r#"{"path": "link/f.txt", "content": "other"}"#;
    bench
        .run(&["approve", "last", "--by", "ada", "--arguments", other])
        .fails(2, "the file is not as it was shown");
    bench.run(&["approve", "last", "--by", "ada"]).ok();
    bench.run(&["resume", &run_id(&bench)]).ok();
    assert!(!bench.path().join("b/f.txt").exists());
    let events = bench.run(&["trace", &run_id(&bench), "--json"]).ok().json();
    let answered = events.iter().find(|event| event["type"] == "tool.responded").unwrap();
    assert_eq!(answered["data"]["error"]["code"], "CHANGED");
}

/// Spec: A4. The words that `fs_write` adds mean nothing in the arguments of other tools.
#[test]
fn own_tool_may_have_a_property_replaces() {
    let call = "{ image = \"v2\", replaces = \"v1\", path = \"p\", file = \"f\" }";
    for name in ["deploy", "fs_write"] {
        let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
        let tool = format!(
            "[[tools]]\nkind = \"command\"\nname = \"{name}\"\ndescription = \"acts\"\n\
             schema = {{ type = \"object\" }}\ncommand = [\"cat\"]\napproval = true\n\
             [agent.policy]\ngrant = [\"process:spawn\"]\n"
        );
        bench.agent(&script(name, call), &tool);
        bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval: apr_");
        let other = r#"{"image": "v2", "replaces": "v0", "path": "p", "file": "g"}"#;
        bench.run(&["approve", "last", "--by", "ada", "--arguments", other]).ok();
        bench.run(&["resume", &run_id(&bench)]).ok();
        assert_eq!(answer(&bench)["replaces"], "v0", "{name}");
    }
}

/// Spec: N4
#[test]
fn a_write_without_approval_runs_at_once() {
    let arguments = "{ path = \"a.txt\", content = \"x\" }";
    let written = bench("fs_write", arguments, "approval = false", "\"fs:write:./*.txt\"");
    written.run(&["run", "agent.toml"]).ok();
    assert_eq!(std::fs::read_to_string(written.path().join("a.txt")).unwrap(), "x");
    let denied = bench("fs_write", arguments, "", "\"fs:read\"");
    denied.run(&["run", "agent.toml"]).ok();
    let text = "Permission denied: tool 'fs_write' requires 'fs:write:a.txt'";
    assert_eq!(answer(&denied)["error"], text);
}

/// Spec: N4
#[test]
fn a_folder_is_listed_by_the_file() {
    let bench = bench("fs_list", "{ path = \".\", pattern = \"*.toml\" }", "", "\"fs:read:./**\"");
    bench.run(&["run", "agent.toml"]).ok();
    let entries = answer(&bench)["entries"].clone();
    assert_eq!((&entries[0]["name"], &entries[1]["type"]), (&"agent.toml".into(), &"file".into()));
}

/// Spec: N4, T3
#[test]
fn a_fetch_goes_where_it_is_granted() {
    let server = Loopback::replying([Reply::new(200, "text/plain", "hello")]);
    let port = server.address().port();
    let arguments = format!("{{ url = \"http://127.0.0.1:{port}/x\" }}");
    let private = "\"network:outbound:127.0.0.1\", \"network:private\"";
    let granted = bench("http_fetch", &arguments, "timeout_ms = 5000", private);
    granted.run(&["run", "agent.toml"]).ok();
    assert_eq!(answer(&granted)["text"], "hello");
    let denied = bench("http_fetch", &arguments, "", "\"network:outbound\"");
    denied.run(&["run", "agent.toml"]).ok();
    let text = "Permission denied: tool 'http_fetch' requires 'network:private'";
    assert_eq!(answer(&denied)["error"], text);
    assert_eq!(server.requests().len(), 1);
    drop(server);
    let refused = bench("http_fetch", &arguments, "", private);
    refused.run(&["run", "agent.toml"]).ok();
    let text = answer(&refused)["error"].as_str().unwrap().to_owned();
    assert!(text.contains("HTTP request failed: connection refused"), "{text}");
}

/// Spec: N4, A1
#[test]
fn a_command_line_runs_once_approved() {
    let arguments = "{ command = \"echo $MINE; pwd; cat; exit 3 >&2\", cwd = \"sub\" }";
    let more = "env = [\"PATH\", \"MINE\"]\ntimeout_ms = 5000";
    let bench = bench("shell", arguments, more, "\"process:spawn\"").with("MINE", "seen");
    std::fs::create_dir(bench.path().join("sub")).unwrap();
    bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval: apr_");
    let open = bench.run(&["approvals", "--json"]).ok().json().remove(0);
    assert_eq!(open["arguments"]["cwd"], "sub");
    bench.run(&["approve", open["id"].as_str().unwrap(), "--by", "ada"]).ok();
    bench.run(&["resume", &run_id(&bench)]).ok();
    let stored = bench.run(&["errors", "list", "--json"]).ok().json().remove(0);
    assert_eq!(stored["code"], "exit_3");
    assert!(stored["raw"].to_string().contains("seen\\n"), "{stored}");
    assert!(stored["raw"].to_string().contains("/sub\\n"), "{stored}");
}

#[test]
fn keys_that_do_not_apply_are_refused() {
    for (tool, more, text) in [
        ("fs_list", "timeout_ms = 5", "tool `fs_list` is built in; `timeout_ms` does not apply"),
        ("http_fetch", "env = []", "tool `http_fetch` is built in; `env` does not apply"),
        ("shell", "idempotent = true", "tool `shell` is built in; `idempotent` does not apply"),
        ("fs_lsit", "", "there is no built-in tool `fs_lsit`"),
    ] {
        bench(tool, "{}", more, "").run(&["run", "agent.toml"]).fails(2, text);
    }
}

/// Spec: N4
#[cfg(target_os = "linux")]
#[test]
fn commands_gain_no_privileges() {
    let line = "grep NoNewPrivs /proc/self/status";
    let arguments = format!("{{ command = \"{line}\" }}");
    let shell = bench("shell", &arguments, "approval = false", "\"process:spawn\"");
    let command = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    command.agent(
        &script("status", "{}"),
        "[[tools]]\nkind = \"command\"\nname = \"status\"\ndescription = \"d\"\ncapabilities = []\n\
         command = [\"grep\", \"NoNewPrivs\", \"/proc/self/status\"]\n",
    );
    for bench in [shell, command] {
        bench.run(&["run", "agent.toml"]).ok();
        assert_eq!(answer(&bench).as_str().unwrap().trim(), "NoNewPrivs:\t1");
    }
}

/// Spec: N4. A variable that cannot be handed on is named, once.
#[cfg(unix)]
#[test]
fn variable_without_utf8_is_named() {
    use std::os::unix::ffi::OsStrExt as _;

    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let tool = |name: &str| {
        format!(
            "[[tools]]\nkind = \"command\"\nname = \"{name}\"\ndescription = \"d\"\n\
             command = [\"sh\", \"-c\", \"echo got ${{LATIN:-nothing}}\"]\nenv = [\"PATH\", \"LATIN\"]\n"
        )
    };
    bench.agent(
        "[[model]]\ntool_calls = [{ id = \"c1\", name = \"a\" }]\n[[model]]\ntext = \"done\"\n",
        &format!("[agent.policy]\ngrant = [\"process:spawn\"]\n{}{}", tool("a"), tool("b")),
    );
    let mut command = bench.command(&["run", "agent.toml", "--events"]);
    command.env("LATIN", std::ffi::OsStr::from_bytes(b"caf\xe9"));
    let ran = crate::bench::Ran::of(command.output().unwrap()).ok();
    let warning = "warning: variable LATIN is no UTF-8; programs do not get it";
    assert_eq!(ran.err.matches(warning).count(), 1, "{}", ran.err);
    assert!(ran.out.contains("got nothing"), "{}", ran.out);
}
