//! Keys, and text that looks like a key, in all output of the command.

use backstop_testkit::{Loopback, Reply};
use serde_json::json;

use crate::bench::Bench;

const KEY: &str = "canary+Zm9vYmFy/key=0123456789";

/// Returns all files that the command left, and its output about them.
fn everything(bench: &Bench) -> String {
    let mut said = String::new();
    for run in bench.run(&["runs", "--json"]).json() {
        let run = run["run"].as_str().unwrap().to_owned();
        for args in [
            vec!["trace", &run],
            vec!["trace", &run, "--json"],
            vec!["trace", &run, "--html", "page.html"],
            vec!["errors", "list", "--json"],
            vec!["approvals", "--json"],
        ] {
            let ran = bench.run(&args);
            said += &format!("{}{}", ran.out, ran.err);
        }
    }
    for file in bench.files() {
        // Input files are not output.
        if !matches!(file.extension().and_then(|end| end.to_str()), Some("toml" | "sh")) {
            said += &String::from_utf8_lossy(&std::fs::read(file).unwrap());
        }
    }
    said
}

fn bench() -> Bench {
    Bench::new()
        .with("SOME_KEY", KEY)
        .with("BACKSTOP_LOG", "trace")
        .with("BACKSTOP_STORE", "sqlite:x.db")
}

/// Writes an agent whose model calls the tool `go` once.
fn asking(bench: &Bench, more: &str) {
    bench.agent(
        "[[model]]\ntool_calls = [{ id = \"c1\", name = \"go\", arguments = {} }]\n[[model]]\ntext = \"done\"\n",
        &format!(
            "api_key_env = \"SOME_KEY\"\n{more}\n[[tools]]\nkind = \"command\"\nname = \"go\"\n\
             description = \"Goes.\"\ncommand = [\"sh\", \"go.sh\"]\napproval = false\n\
             [agent.policy]\ngrant = [\"process:spawn\"]\n"
        ),
    );
}

/// Spec: D2, S9
#[test]
fn an_agent_file_is_recorded_without_its_secrets() {
    let server = Loopback::replying([Reply::json(
        200,
        &json!({ "choices": [{ "message": { "content": "hi" }, "finish_reason": "stop" }] }),
    )]);
    let bench = bench();
    bench.write(
        "agent.toml",
        &format!(
            "[agent]\ninput = \"x\"\n[model]\nprovider = \"openai\"\nmodel = \"m\"\nstream = false\n\
             base_url = \"{}\"\napi_key_env = \"SOME_KEY\"\n[model.extra_body]\nuser = \"ada\"\n\
             vault = [{{ client_secret = \"leak-one\", deep = {{ token = \"leak-two\" }} }}]\n\
             [[tools]]\nkind = \"command\"\nname = \"go\"\ndescription = \"Goes.\"\n\
             command = [\"go\", \"--api-key\", \"leak-three\", \"--password=leak-four5\", \
             \"-H\", \"Authorization: Bearer leak-five\", \"{KEY}\"]\n",
            server.url()
        ),
    );
    let ran = bench.run(&["run", "agent.toml", "--json"]).ok();
    let said = format!("{}{}{}", ran.out, ran.err, everything(&bench));
    for leak in ["leak-", "canary"] {
        assert!(!said.contains(leak), "{said}");
    }
    assert!(said.contains("ada"));
    let sent = server.requests().remove(0).body;
    assert_eq!(sent["vault"][0]["deep"]["token"], "leak-two");
    let run = bench.run(&["runs", "--json"]).json()[0]["run"].as_str().unwrap().to_owned();
    bench.run(&["replay", &run, "--agent", "agent.toml"]).ok();
    bench.run(&["fork", &run, "--at", "1"]).fails(2, "held a secret, which is not recorded");
}

/// Spec: S9
#[test]
fn patterns_of_an_agent_file_are_taken_out() {
    let bench = bench();
    asking(&bench, "[redact]\npatterns = [\"CUST-[0-9]{8}\", '(?P<keep>case )[A-Z]+']");
    bench.write("go.sh", "echo 'no CUST-12345678 in case ABCD' >&2; exit 1");
    let ran = bench.run(&["run", "agent.toml"]).ok();
    let said = format!("{}{}{}", ran.out, ran.err, everything(&bench));
    assert!(!said.contains("CUST-1") && !said.contains("ABCD"), "{said}");
    assert!(said.contains("no [redacted] in case [redacted]"), "{said}");
    for (pattern, error) in [
        ("(", "agent.toml:8: pattern `(`: unclosed group"),
        ("x*", "agent.toml:8: pattern `x*` matches the empty text"),
    ] {
        asking(&bench, &format!("[redact]\npatterns = [\"{pattern}\"]"));
        bench.run(&["run", "agent.toml"]).fails(2, error);
    }
}

/// Spec: E10, S9
#[test]
fn what_people_say_is_stored_without_keys() {
    let bench = bench();
    asking(&bench, "");
    let file = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    bench.write("agent.toml", &file.replace("approval = false", "approval = true"));
    for (index, args) in [
        ["deny", "--by", KEY, "--reason", "no"],
        ["deny", "--by", "ada", "--reason", &format!("the key is {KEY}")],
        ["approve", "--by", "ada", "--reason", &KEY.replace('/', "%2F")],
        ["approve", "--by", "sk-canary0123456789abcdef", "--reason", "password=canary1"],
    ]
    .iter()
    .enumerate()
    {
        bench.run(&["run", "agent.toml", "--session", &format!("s{index}")]).fails(4, "");
        let open = bench.run(&["approvals", "--json"]).ok().json().remove(0);
        let (id, run) = (open["id"].as_str().unwrap(), open["run"].as_str().unwrap());
        let ran = bench.run(&[args[0], id, args[1], args[2], args[3], args[4]]).ok();
        let resumed = bench.run(&["resume", run]);
        let said = format!("{}{}{}{}", ran.err, resumed.out, resumed.err, everything(&bench));
        assert!(!said.contains("canary"), "{said}");
    }
    let refused = bench.run(&["run", "agent.toml", "--session", KEY]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    let said = format!("{}{}{}", refused.out, refused.err, everything(&bench));
    assert!(said.contains("the session id holds a secret of this process"), "{said}");
    assert!(!said.contains("canary"), "{said}");
}

/// Spec: E10, S3. Bytes that are no text are encoded, after they were searched.
#[test]
fn keys_beside_invalid_bytes_are_taken_out() {
    let bench = bench();
    asking(&bench, "");
    bench.write("go.sh", &format!("printf '\\377 {KEY} and \\376' >&2; exit 1"));
    let ran = bench.run(&["run", "agent.toml"]).ok();
    let said = format!("{}{}{}", ran.out, ran.err, everything(&bench));
    // `canary` at each of the three offsets in a group of three bytes.
    for part in ["canary", "Y2FuYXJ5", "NhbmFye", "jYW5hcn"] {
        assert!(!said.contains(part), "{part}: {said}");
    }
    assert!(said.contains("bytes_base64"), "{said}");
}

/// Spec: S9. A page holds the errors of tools.
#[cfg(unix)]
#[test]
fn a_page_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;

    let bench = bench();
    asking(&bench, "");
    bench.write("go.sh", "exit 1");
    bench.run(&["run", "agent.toml"]).ok();
    let run = bench.run(&["runs", "--json"]).json()[0]["run"].as_str().unwrap().to_owned();
    bench.write("old.html", "what others could read");
    bench.write("old.html.new", "what a killed process left");
    for page in ["new.html", "old.html"] {
        bench.run(&["trace", &run, "--html", page]).ok();
        let mode = std::fs::metadata(bench.path().join(page)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{page}");
    }
}

/// Spec: E10, K1, S9. Every table of the store, after a run that uses what writes into it.
#[test]
fn no_table_of_the_store_holds_a_key() {
    let bench = bench();
    let pay = "{ id = \"c1\", name = \"pay\", arguments = { invoice = 7 } }";
    let note =
        format!("{{ id = \"c2\", name = \"memory_save\", arguments = {{ text = \"{KEY}\" }} }}");
    let fail = "{ id = \"c3\", name = \"fails\", arguments = {} }";
    let script =
        format!("[[model]]\ntool_calls = [{pay}, {note}, {fail}]\n[[model]]\ntext = \"done\"\n");
    let command = |name: &str, line: &str| {
        format!(
            "[[tools]]\nkind = \"command\"\nname = \"{name}\"\ndescription = \"d\"\n\
             env = [\"PATH\", \"SOME_KEY\"]\ncommand = [\"sh\", \"-c\", \"{line}\"]\n"
        )
    };
    let pay = command("pay", "echo paid with $SOME_KEY") + "once = \"/invoice\"\n";
    let fails = command("fails", "echo $SOME_KEY >&2; exit 1");
    bench.agent(
        &script,
        &format!(
            "api_key_env = \"SOME_KEY\"\n[agent.policy]\ngrant = [\"process:spawn\", \"memory\"]\n\
             [agent.price]\ninput_per_mtok = 1.0\noutput_per_mtok = 1.0\n\
             [memory]\nscope = \"agent\"\n\
             [[limit]]\nscope = \"label:team\"\nper = \"day\"\nmax_cost_usd = 1.0\n\
             {pay}{fails}[[tools]]\nkind = \"builtin\"\nname = \"memory_save\"\n"
        ),
    );
    let input = format!("pay, the key is {KEY}");
    bench.run(&["run", "agent.toml", &input, "--label", "team=red"]).ok();
    let kept = bench.run(&["state", "list", "--json"]).ok().out;
    assert!(kept.contains("once/pay/") && !kept.contains("paid with"), "{kept}");
    let run = bench.run(&["runs", "--json"]).ok().json()[0]["run"].as_str().unwrap().to_owned();
    let kept = bench.run(&["state", "list", "--json", "--scope", &format!("run:{run}")]).ok().out;
    assert!(kept.contains("once/pay/") && kept.contains("paid with [redacted]"), "{kept}");
    for scope in ["agent:agent", "limit:label:team=red"] {
        let kept = bench.run(&["state", "list", "--json", "--scope", scope]).out;
        assert!(!kept.contains(KEY), "{kept}");
    }
    let all = everything(&bench);
    assert!(all.contains("[redacted]") && !all.contains(KEY));
    let refused = bench.run(&["run", "agent.toml", "x", "--label", &format!("team={KEY}")]);
    assert!(
        refused.code != 0 && refused.err.contains("holds a secret of this process"),
        "{}",
        refused.err
    );
    assert!(!everything(&bench).contains(KEY));
}
