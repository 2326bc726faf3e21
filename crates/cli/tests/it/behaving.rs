//! `[[behavior]]` during a run: deliveries to commands and servers, and their failures.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use backstop_testkit::{ClosedPort, Loopback, Reply};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::running::{ASKS, REFUNDS};
use crate::worker::until;

const STORE: &str = "sqlite:x.db";
const FAILS: &str = "[[model]]\nerror = { kind = \"auth_failed\" }\n";
const GRANTS: &str = "[agent.policy]\ngrant = [\"process:spawn\"]\n";
/// A command that keeps its input line, its working directory and its environment.
const KEEPS: &str = "command = [\"sh\", \"-c\", \"cat >> told; pwd > where; env > held\"]";

fn bench() -> Bench {
    Bench::new().with("BACKSTOP_STORE", STORE)
}

/// Writes a `[[behavior]]` table.
pub(crate) fn table(name: &str, on: &str, action: &str) -> String {
    format!("[[behavior]]\nname = \"{name}\"\non = \"{on}\"\n{action}\n")
}

fn posted(server: &Loopback, more: &str) -> String {
    table("tell ops", "run.failed", &format!("url = \"{}/hook\"\n{more}", server.url()))
}

/// Returns the types and data of a subscription's record, without its first event.
pub(crate) fn recorded(bench: &Bench, subscription: &str) -> Vec<(String, Value)> {
    let records = bench.run(&["trace", subscription, "--json"]).ok().json();
    let said =
        |record: &Value| (record["type"].as_str().unwrap().to_owned(), record["data"].clone());
    records[1..].iter().map(said).collect()
}

/// Runs an agent that fails, with these behaviours, and returns the failure of `tell ops`.
#[track_caller]
fn failure(behaviors: &str) -> Value {
    let bench = bench();
    bench.agent(FAILS, &format!("{GRANTS}{behaviors}"));
    bench.run(&["run", "agent.toml"]).fails(1, "provider.auth_failed");
    let mut recorded = recorded(&bench, "sub_tell ops");
    let (kind, failed) = recorded.pop().unwrap();
    assert_eq!((recorded.len(), kind.as_str()), (1, "behavior.failed"));
    let code = &failed["reason"];
    assert!(code == "behavior.failed" || code == "behavior.timeout", "{failed}");
    failed
}

/// Spec: X8, X2
#[test]
fn command_gets_one_line_of_json() {
    let bench = bench().with("SECRET", "hidden");
    bench.agent(FAILS, &format!("{GRANTS}{}", table("tell ops", "run.failed", KEEPS)));
    let report = bench.run(&["run", "agent.toml", "--json"]).fails(1, "").json().remove(0);
    let event = report["events"].as_array().unwrap().last().unwrap();
    let told = std::fs::read_to_string(bench.path().join("told")).unwrap();
    assert_eq!((told.lines().count(), told.ends_with("}\n")), (1, true), "{told}");
    let run = report["run"].as_str().unwrap();
    let id = format!("tell ops/{run}/5");
    let expected = json!({
        "id": id, "behavior": "tell ops", "run": run, "seq": 5, "event": event,
    });
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap(), expected);
    let traced = bench.run(&["trace", run, "--json"]).ok();
    assert!(told.contains(traced.out.lines().last().unwrap()), "the event is as it is logged");

    let read = |name: &str| std::fs::read_to_string(bench.path().join(name)).unwrap();
    let folder = bench.path().canonicalize().unwrap();
    assert_eq!(read("where").trim(), folder.to_str().unwrap());
    let held = read("held");
    assert!(held.contains("HOME=") && held.contains("PATH=") && !held.contains("SECRET"), "{held}");
    let ends = recorded(&bench, "sub_tell ops");
    let data = json!({ "behavior": "tell ops", "run": run, "seq": 5, "attempts": 1 });
    assert_eq!(ends[1], ("behavior.completed".to_owned(), data));
}

/// Spec: X8
#[test]
fn url_gets_a_post_with_its_key() {
    let server = Loopback::replying([Reply::json(204, &Value::Null)]);
    let bench = bench();
    bench.agent(FAILS, &posted(&server, ""));
    let report = bench.run(&["run", "agent.toml", "--json"]).fails(1, "").json().remove(0);
    let request = server.requests().remove(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/hook"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    let run = report["run"].as_str().unwrap();
    let id = format!("tell ops/{run}/5");
    assert_eq!(request.header("idempotency-key"), Some(&*id));
    let event = report["events"].as_array().unwrap().last().unwrap();
    let expected = json!({
        "id": id, "behavior": "tell ops", "run": run, "seq": 5, "event": event,
    });
    assert_eq!(request.body, expected);
}

/// Verifies a webhook's request with the standard library of another language.
const VERIFIER: &str = r#"
import base64, hashlib, hmac, sys
key, id, time, signature = (argument.encode() for argument in sys.argv[1:])
digest = hmac.new(base64.b64decode(key.removeprefix(b"whsec_")), digestmod=hashlib.sha256)
for part in (id, b".", time, b".", sys.stdin.buffer.read()):
    digest.update(part)
print(signature == b"v1," + base64.b64encode(digest.digest()))
"#;

/// Spec: X8, E10. Headers and signature come from references; neither is recorded or shown.
#[test]
fn url_is_sent_credentials_and_a_signature() {
    let busy = Reply::json(503, &Value::Null);
    let server = Loopback::replying([busy, Reply::json(204, &Value::Null)]);
    let key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let bench = bench().with("HOOK_KEY", key);
    bench.write("token", "hunter2-hunter2\n");
    let more = "headers = { authorization = \"command:cat token\", x-tenant = \"acme\" }\n\
                signing_key = \"env:HOOK_KEY\"\n";
    bench.agent(FAILS, &posted(&server, more));
    let ran = bench.run(&["run", "agent.toml", "--json"]).fails(1, "");
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        let header = |name: &str| request.header(name).unwrap_or_default();
        assert_eq!((header("authorization"), header("x-tenant")), ("hunter2-hunter2", "acme"));
        assert_eq!(header("webhook-id"), header("idempotency-key"));
        let signed = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(header);
        let mut python = std::process::Command::new("python3");
        python
            .args(["-c", VERIFIER, key])
            .args(signed)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut python = python.spawn().unwrap();
        python.stdin.take().unwrap().write_all(&request.bytes).unwrap();
        assert_eq!(python.wait_with_output().unwrap().stdout, b"True\n");
    }
    let trace = bench.run(&["trace", "last", "--json"]).ok().out;
    for secret in ["hunter2", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
        assert!(![&*trace, &*ran.out, &*ran.err].iter().any(|text| text.contains(secret)));
    }
    let unset = self::bench();
    unset.agent(FAILS, &posted(&server, "signing_key = \"env:HOOK_KEY\"\n"));
    unset.run(&["run", "agent.toml"]).fails(2, "run `export HOOK_KEY=…`");
    assert!(!unset.path().join("x.db").exists());
    let empty = self::bench().with("HOOK_KEY", "whsec_");
    empty.agent(FAILS, &posted(&server, "signing_key = \"env:HOOK_KEY\"\n"));
    empty.run(&["run", "agent.toml"]).fails(2, "no Base64 behind `whsec_`");
}

/// Spec: X8, X3
#[test]
fn only_status_75_is_tried_again() {
    for (status, attempts, message) in [
        (75, 3, "`sh` asks to be run again later: disk is full"),
        (1, 1, "`sh` ended with exit status: 1: disk is full"),
    ] {
        let command = format!(
            "command = [\"sh\", \"-c\", \"echo >> tried; echo disk is full >&2; exit {status}\"]"
        );
        let failed = failure(&table("tell ops", "run.failed", &command));
        assert_eq!((&failed["attempts"], &failed["message"]), (&json!(attempts), &json!(message)));
        assert_eq!(failed["exception_type"], "CommandError");
    }
}

/// Spec: X8
#[test]
fn missing_command_is_named() {
    let failed = failure(&table("tell ops", "run.failed", "command = [\"./notify.sh\"]"));
    assert_eq!(failed["message"], "there is no program `./notify.sh`");
    assert_eq!(failed["attempts"], 1);
}

/// Spec: X8
#[test]
fn server_decides_what_is_tried_again() {
    let refused = || Reply::new(404, "text/plain", "no such hook");
    let busy = || Reply::new(503, "text/plain", "later").header("retry-after-ms", "20");
    for (replies, attempts, message) in [
        (vec![refused()], 1, "the server answered 404 Not Found: no such hook"),
        (vec![busy(), busy(), busy()], 3, "the server answered 503 Service Unavailable: later"),
        (vec![busy(), refused()], 2, "the server answered 404 Not Found: no such hook"),
    ] {
        let asked = replies.len();
        let server = Loopback::replying(replies);
        let failed = failure(&posted(&server, ""));
        assert_eq!((&failed["attempts"], &failed["message"]), (&json!(attempts), &json!(message)));
        assert_eq!(server.count(), asked);
    }
    let closed = ClosedPort::bind();
    let url = format!("url = \"{}\"", closed.url());
    let failed = failure(&table("tell ops", "run.failed", &url));
    assert_eq!(failed["attempts"], 3, "{failed}");
}

/// Spec: X8
#[test]
fn redirect_is_refused_and_not_followed() {
    let elsewhere = Loopback::replying([]);
    let to = format!("{}/other", elsewhere.url());
    let server = Loopback::replying([Reply::new(307, "", "").header("location", &*to)]);
    let failed = failure(&posted(&server, ""));
    let message = format!(
        "the server answered 307 Temporary Redirect and points to {to}; redirects are not followed"
    );
    assert_eq!((&failed["attempts"], &failed["message"]), (&json!(1), &json!(message)));
    assert_eq!(elsewhere.count(), 0);
}

/// Spec: X3, X8
#[test]
fn hanging_behaviour_times_out() {
    let hangs = || Reply::json(200, &Value::Null).delay(Duration::from_secs(60));
    let server = Loopback::replying([hangs(), hangs(), hangs()]);
    let failed = failure(&posted(&server, "timeout_ms = 100"));
    assert_eq!((&failed["reason"], &failed["attempts"]), (&json!("behavior.timeout"), &json!(3)));
    let command = "command = [\"sh\", \"-c\", \"sleep 60 & wait\"]\ntimeout_ms = 100";
    let failed = failure(&table("tell ops", "run.failed", command));
    assert_eq!(failed["reason"], "behavior.timeout");
}

/// Spec: X3. A failed delivery is shown to a behaviour on `behavior.failed`, once.
#[test]
fn failed_delivery_is_told_before_the_end() {
    let bench = bench();
    let tables = [
        table("fails", "run.finished", "command = [\"false\"]"),
        table("told", "behavior.failed", KEEPS),
    ];
    bench.agent("[[model]]\ntext = \"ok\"\n", &format!("{GRANTS}{}", tables.concat()));
    bench.run(&["run", "agent.toml"]).ok();
    let told = std::fs::read_to_string(bench.path().join("told")).unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["run"], &told["event"]["data"]["behavior"]),
        (&json!("sub_fails.1"), &json!("fails"))
    );
}

/// Spec: X8. A run whose store is gone at its end is told of as well; one without behaviours leaves nothing.
#[test]
fn store_in_memory_serves_too() {
    let bench = Bench::new();
    bench.agent(FAILS, &format!("{GRANTS}{}", table("tell", "run.failed", KEEPS)));
    bench
        .run(&["run", "agent.toml", "--store", "sqlite::memory:"])
        .fails(1, "provider.auth_failed");
    assert!(bench.path().join("told").exists());
    let plain = self::bench();
    plain.agent(FAILS, "");
    plain.run(&["run", "agent.toml"]).fails(1, "");
    assert_eq!(plain.run(&["behaviors", "list"]).ok().out, "");
}

/// Spec: X8, D5
#[test]
fn resumed_and_forked_runs_are_told_of() {
    let bench = bench();
    let behavior = table("tell", "run.finished", KEEPS);
    bench.agent(REFUNDS, &format!("{ASKS}{behavior}"));
    bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval");
    bench.run(&["approve", "last", "--by", "ada"]).ok();
    bench.run(&["resume", "last"]).ok();
    bench.run(&["fork", "last", "--at", "9"]).ok();
    let told = std::fs::read_to_string(bench.path().join("told")).unwrap();
    assert_eq!(told.lines().count(), 2, "{told}");
}

/// Spec: X3, X4
#[test]
fn failures_are_listed_and_delivered_again() {
    let bench = bench();
    let command = "command = [\"sh\", \"-c\", \"cat > told; test -e mended\"]";
    let behaviors = table("tell", "run.failed", command);
    bench.agent(FAILS, &format!("{GRANTS}{behaviors}"));
    assert_eq!(bench.run(&["behaviors", "failures"]).ok().out, "");
    let report = bench.run(&["run", "agent.toml", "--json"]).fails(1, "").json().remove(0);
    let id = format!("tell/{}/5", report["run"].as_str().unwrap());
    let failed = bench.run(&["behaviors", "failures", "--json"]).ok().json().remove(0);
    let expected = json!({
        "id": id, "at": failed["at"], "behavior": "tell", "run": report["run"], "seq": 5,
        "attempts": 1, "exception_type": "CommandError", "reason": "behavior.failed",
        "message": "`sh` ended with exit status: 1",
    });
    assert_eq!(failed, expected);
    let again = ["behaviors", "redeliver", &id, "--agent", "agent.toml"];
    bench.run(&again).fails(1, "behavior.failed: `sh` ended with exit status: 1");
    bench.write("mended", "");
    let done = bench.run(&[&again[..], &["--json"]].concat()).ok().json().remove(0);
    let expected = json!({ "id": id, "ok": true, "attempts": 1, "reason": null, "message": null });
    assert_eq!(done, expected);
    assert_eq!(bench.run(&["behaviors", "failures"]).ok().out, "", "it is delivered by now");
    let said = "an earlier delivery of ";
    assert!(bench.run(&again).ok().err.contains(said), "it had completed");
    let listed = bench.run(&["behaviors", "list", "--json"]).ok().json().remove(0);
    let expected = json!({
        "name": "tell", "pattern": "run.failed", "segment": "sub_tell.1",
        "cursor": listed["cursor"], "delivered": 4, "failed": 2,
    });
    assert_eq!(listed, expected);
    let kinds: Vec<String> =
        recorded(&bench, "sub_tell").into_iter().map(|(kind, _)| kind).collect();
    let [begun, failed] = ["behavior.delivered", "behavior.failed"];
    let completed = "behavior.completed";
    assert_eq!(kinds, [begun, failed, begun, failed, begun, completed, begun, completed]);
    for (unknown, message) in [
        ("tell/run_none/5", "there is no delivery `tell/run_none/5`"),
        (&*format!("{id}0"), "there is no delivery"),
        ("other/run_none/5", "the agent file has no behaviour `other`"),
        (&*id.replace("/5", "/1"), "is not shown `run.started` events like this"),
        ("tell", "invalid delivery id `tell`"),
    ] {
        bench.run(&["behaviors", "redeliver", unknown, "--agent", "agent.toml"]).fails(2, message);
    }
}

/// Spec: X3, X4. A delivery that was begun, and ended by the death of the process, is none that was made.
#[test]
fn cut_delivery_is_not_listed_as_delivered() {
    let bench = bench();
    let hangs =
        table("tell", "run.failed", "command = [\"sh\", \"-c\", \"touch begun; sleep 60\"]");
    bench.agent(FAILS, &format!("{GRANTS}{hangs}"));
    let mut running = bench.command(&["run", "agent.toml"]).stderr(Stdio::null()).spawn().unwrap();
    until(|| bench.path().join("begun").exists());
    running.kill().unwrap();
    running.wait().unwrap();
    let kinds: Vec<String> =
        recorded(&bench, "sub_tell").into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["behavior.delivered"]);
    let listed = bench.run(&["behaviors", "list", "--json"]).ok().json().remove(0);
    assert_eq!((&listed["delivered"], &listed["failed"]), (&json!(0), &json!(0)));
}

/// Spec: X4
#[test]
fn subscription_is_traced_verified_and_exported() {
    let bench = bench();
    let tables = [table("tell", "run.failed", KEEPS), table("tell ops", "run.failed", KEEPS)];
    bench.agent(FAILS, &format!("{GRANTS}{}", tables.concat()));
    bench.run(&["run", "agent.toml"]).fails(1, "");
    // Another pattern starts another segment.
    let changed = format!("{GRANTS}{}{}", table("tell", "run.*", KEEPS), tables[1]);
    bench.agent(FAILS, &changed);
    bench.run(&["run", "agent.toml"]).fails(1, "");
    let trace = bench.run(&["trace", "sub_tell"]).ok().out;
    assert_eq!(trace.matches("subscription.opened").count(), 2, "{trace}");
    let one = bench.run(&["trace", "sub_tell.2"]).ok().out;
    assert!(trace.ends_with(&one) && one.len() < trace.len(), "{one}");
    bench.run(&["verify", "sub_tell"]).ok();
    let all = bench.run(&["verify", "--all"]).ok().out;
    assert!(all.ends_with("2 runs and 3 segments verified, 0 cannot be trusted\n"), "{all}");
    let exported = bench.run(&["export", "sub_tell.1"]).ok().json();
    assert_eq!((&exported[0]["run"], &exported[0]["events"]), (&json!("sub_tell.1"), &json!(3)));
    bench.run(&["export", "sub_tell"]).fails(2, "`sub_tell` has 2 segments");
    bench.run(&["export", "sub_tell op"]).ok();
    for command in ["resume", "replay", "cancel"] {
        bench.run(&[command, "sub_tell.1"]).fails(2, "is no run");
    }
    bench.run(&["trace", "sub_none"]).fails(2, "no subscription `sub_none`");
    assert!(!bench.run(&["runs", "--json"]).ok().out.contains("sub_"));
}
