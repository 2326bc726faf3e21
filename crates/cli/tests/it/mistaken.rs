//! Mistakes of newcomers: each message describes the mistake, its place and how to fix it.

use backstop_testkit::{Loopback, Reply};
use serde_json::json;

use crate::bench::Bench;

const SAYS: &str = "[[model]]\ntext = \"ok\"\n";
const CLAUDE: &str = "[model]\nprovider = \"anthropic\"\nmodel = \"claude-sonnet-4-5\"\n";

/// Runs an agent file with this text, which is refused and leaves no file.
#[track_caller]
fn refused(text: &str, what: &str, hint: &str) {
    let bench = Bench::new();
    bench.write("a.toml", text);
    let ran = bench.run(&["run", "a.toml", "hi"]).fails(2, what);
    assert!(ran.err.contains(&format!("\n  hint: {hint}")), "{}", ran.err);
    assert_eq!(bench.files().len(), 1, "no store is made");
}

/// Spec: W8
#[test]
fn check_names_what_tools_lack() {
    let bench = Bench::new();
    bench.write("plain.sh", "echo hi");
    let tool = |name: &str, more: &str| {
        format!("[[tools]]\nkind = \"command\"\nname = \"{name}\"\ndescription = \"d\"\n{more}\n")
    };
    let built_in = |name: &str| format!("[[tools]]\nkind = \"builtin\"\nname = \"{name}\"\n");
    let text = [
        "[agent.policy]\ngrant = [\"fs:read:./**\"]\n".to_owned(),
        CLAUDE.to_owned(),
        built_in("fs_read"),
        built_in("shell"),
        built_in("http_fetch"),
        built_in("fs_write"),
        tool(
            "gone",
            "capabilities = []\nschema = { type = \"object\" }\ncommand = [\"no-such-it\"]",
        ),
        tool(
            "plain",
            "capabilities = []\nschema = { type = \"object\" }\ncommand = [\"./plain.sh\"]",
        ),
        tool("bare", "command = [\"sh\"]\nenv = [\"PATH\"]"),
    ];
    bench.write("a.toml", &text.concat());
    let found = bench.run(&["check", "a.toml", "--json"]).fails(2, "").json();
    let expected = [
        (9, "tool `shell` needs `process:spawn`", "grant = [\"fs:read:./**\", \"process:spawn\"]"),
        (12, "tool `http_fetch` needs `network:outbound`", "\"network:outbound:HOST\"]"),
        (15, "tool `fs_write` needs `fs:write`", "\"fs:write:./**\"]"),
        (
            18,
            "tool `gone`: there is no program `no-such-it` in PATH",
            "command = [\"./no-such-it\"]",
        ),
        (25, "tool `plain`: `./plain.sh` is not executable", "chmod +x ./plain.sh"),
        (32, "tool `bare` needs `process:spawn`", "\"process:spawn\"]"),
        (32, "tool `bare` has no `schema`", "schema = { type = \"object\""),
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, (line, what, hint)) in found.iter().zip(expected) {
        assert_eq!(found["line"], line, "{found}");
        assert!(found["message"].as_str().unwrap().starts_with(what), "{found}");
        assert!(found["hint"].as_str().unwrap().contains(hint), "{found}");
    }
    let doctor = bench.run(&["doctor", "a.toml"]).fails(1, "");
    assert_eq!(doctor.out.matches("mend  tools").count(), 7, "{}", doctor.out);
}

/// Spec: C5, W8. Ten mistakes of different sections, some of them in one table.
#[test]
fn check_finds_all_mistakes_in_one_pass() {
    let bench = Bench::new();
    let text = "[agent]\nnmae = \"x\"\n[agent.limits]\nmax_iterations = 0\n[agent.policy]\n\
        grant = [\"fs:raed\"]\n[model]\nprovider = \"openai\"\ntemperature = 9.0\ntool_choice = \"lok\"\n\
        [[tools]]\nkind = \"command\"\nname = \"look\"\ndescription = \"d\"\n\
        command = [\"no-such-it\"]\ncwd = \"nowhere\"\ncolour = \"red\"\n\
        [[tools]]\nkind = \"builtin\"\nname = \"fs_raed\"\ntimeout_ms = 0\n\
        [[tools]]\nkind = \"builtin\"\nname = \"memory_save\"\ncommand = [\"x\"]\nidempotent = true\n\
        [[mcp]]\nname = \"m\"\nurl = \"ftp://x\"\n[[limit]]\nscope = \"agnt\"\nper = \"day\"\nmax_cost_usd = 1\n\
        [store]\nurl = \"mysql://x\"\n[redact]\npatterns = [\"(\"]\n";
    bench.write("a.toml", text);
    let found = bench.run(&["check", "a.toml", "--json"]).fails(2, "").json();
    let found: Vec<_> =
        found.iter().map(|it| (&it["line"], it["message"].as_str().unwrap())).collect();
    for (line, what) in [
        (2, "unknown field `nmae`"),
        (4, "`max_iterations` must be at least 1"),
        (6, "grant `fs:raed` is not valid"),
        (7, "[model] names no model"),
        (9, "`temperature` must be from 0 to 2"),
        (11, "tool `look` runs in"),
        (11, "tool `look`: there is no program `no-such-it`"),
        (11, "tool `look` has no `schema`"),
        (17, "unknown field `colour`"),
        (18, "there is no built-in tool `fs_raed`"),
        (21, "`timeout_ms` must be at least 1"),
        (22, "tool `memory_save` is built in; `command`"),
        (22, "tool `memory_save` is built in; `idempotent`"),
        (27, "`url` of MCP server `m` has neither"),
        (31, "`scope`: unknown variant `agnt`"),
        (34, "invalid store URL"),
        (37, "pattern `(`"),
    ] {
        let is_it =
            |(at, message): &&(&serde_json::Value, &str)| **at == line && message.starts_with(what);
        assert_eq!(found.iter().filter(is_it).count(), 1, "{line}: {what}: {found:#?}");
    }
}

/// Spec: W8. Each item of a list is judged by itself, and a name is said as it stands in the file.
#[test]
fn check_finds_every_mistake_of_a_list() {
    let bench = Bench::new();
    let name = "x".repeat(1 << 20);
    bench.write("script.toml", "[[model]]\ntext = \"ok\"\n");
    let text = format!(
        "[agent]\nname = \"{name}\"\n[agent.policy]\n\
         grant = [\"proces:spawn\", \"fs:raed:./x\", \"memory\", \"memory:\"]\n\
         [redact]\npatterns = [\"(\", \"fine\", \"\", \"[a\"]\n\
         [model]\nprovider = \"script\"\nscript = \"script.toml\"\n\
         [[tools]]\nkind = \"command\"\nname = \"t\"\ndescription = \"d\"\ncommand = [\"true\"]\n\
         schema = {{ type = \"object\" }}\ncapabilities = [\"memory\", \"fs:raed:x\", \"proces\"]\n\
         [[behavior]]\nname = \"tell.1\"\non = \"run.failed\"\nurl = \"https://hooks.example/\"\n"
    );
    bench.write("a.toml", &text);
    let found = bench.run(&["check", "a.toml", "--json"]).fails(2, "").json();
    let found: Vec<_> = found
        .iter()
        .map(|it| (it["line"].as_u64().unwrap(), it["message"].as_str().unwrap()))
        .collect();
    let expected = [
        (2, "`name` must have at most 64 characters"),
        (4, "grant `proces:spawn` is not valid: there is no `proces`"),
        (4, "grant `fs:raed:./x` is not valid: there is no `fs:raed`"),
        (4, "grant `memory:` is not valid"),
        (6, "pattern `(`: unclosed group"),
        (6, "pattern `` matches the empty text"),
        (6, "pattern `[a`: unclosed character class"),
        (16, "capability `fs:raed:x` is not valid"),
        (16, "capability `proces` is not valid"),
        (18, "behavior: the name `tell.1` ends with a dot and a number"),
        (20, "behavior `tell.1` needs `network:outbound:hooks.example`"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, (line, what)) in found.iter().zip(expected) {
        assert!(found.0 == line && found.1.starts_with(what), "{line}: {what}: {found:?}");
    }
    bench.run(&["run", "a.toml", "x"]).fails(2, "a.toml:2: `name` must have at most 64 characters");
}

/// Spec: C5, W8. Values in place of mistaken ones cause no mistakes of their own.
#[test]
fn check_invents_no_mistakes() {
    let bench = Bench::new();
    let text = "[agent.policy]\ngrant = [\"process:spawn\"]\n[model]\nprovider = \"olama\"\nmodle = \"m\"\n\
        [[tools]]\nkind = \"command\"\nname = \"look\"\ndescription = 3\nschema = { type = \"object\" }\n\
        comand = [\"true\"]\n[[tools]]\nkind = \"command\"\nname = \"look\"\ndescription = \"d\"\n\
        schema = { type = \"object\" }\ncommand = \"true\"\ncwd = \"nowhere\"\n";
    bench.write("a.toml", text);
    let found = bench.run(&["check", "a.toml", "--json"]).fails(2, "").json();
    let lines: Vec<_> = found.iter().map(|it| it["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [4, 5, 9, 11, 12, 14, 17], "{found:#?}");
    assert!(found[4]["message"].as_str().unwrap().starts_with("tool `look` runs in"), "{found:#?}");
}

/// Spec: Y1
#[test]
fn a_denied_call_says_what_to_grant() {
    let bench = Bench::new();
    bench.agent(
        "[[model]]\ntool_calls = [{ id = \"c1\", name = \"x\", arguments = {} }]\n[[model]]\ntext = \"ok\"\n",
        "[[tools]]\nkind = \"command\"\nname = \"x\"\ndescription = \"d\"\ncommand = [\"true\"]\n",
    );
    let ran = bench.run(&["run", "agent.toml"]).ok();
    let said = "`x` was denied `process:spawn`; if it may have it, add it to [agent.policy] of agent.toml: \
                `grant = [\"process:spawn\"]`";
    assert!(ran.err.contains(said), "{}", ran.err);
}

#[test]
fn a_file_that_is_none_is_explained() {
    let bench = Bench::new();
    let check = |bench: &Bench, args: &[&str], what: &str, hint: &str| {
        let ran = bench.run(args).fails(2, what);
        assert!(ran.err.contains(hint), "{}", ran.err);
    };
    check(&bench, &["run", "a.toml"], "No such file", "`backstop init a.toml`");
    check(&bench, &["check", "a.toml"], "No such file", "`backstop init a.toml`");
    check(
        &bench,
        &["run", "what is up"],
        "what is up: there is no such agent file",
        "`backstop run AGENT.toml 'what is up'`",
    );
    check(&bench, &["run", "."], ".: is a folder", "name an agent file");
    let ran = bench.run(&["doctor", "a.toml"]).fails(1, "");
    assert!(ran.out.contains("No such file") && ran.out.contains("init a.toml"), "{}", ran.out);
    assert!(bench.files().is_empty());
    bench.run(&["init"]).ok();
    check(&bench, &["run", "."], ".: is a folder", "name the file in it: ./agent.toml");
}

/// Spec: C5
#[test]
fn mistaken_keys_and_values_have_their_remedy() {
    let check = |text: &str, what: &str, hint: &str| refused(text, &format!("a.toml:{what}"), hint);
    check(
        "[model]\nprovider = \"mistral\"\n",
        "2: `provider`: unknown variant",
        "write `openai`, and `base_url",
    );
    check(
        "[model]\nprovider = script\n",
        "2: `provider`: string values",
        "write `provider = \"…\"`",
    );
    check("[model]\nprovider = \"openai\"\n", "1: [model] names no model", "add `model = ");
    check(CLAUDE, "1: no API key: environment variable `ANTHROPIC_API_KEY`", "get a key");
    check(
        &format!("[agent]\nmodel = \"x\"\n{CLAUDE}"),
        "2: unknown field",
        "it belongs into `[model]`",
    );
    check(&CLAUDE.replace("model =", "name ="), "3: unknown field `name`", "did you mean `model`?");
    let limits = |value: &str| format!("[agent.limits]\nmax_iterations = {value}\n{CLAUDE}");
    check(
        &limits("\"ten\""),
        "2: `max_iterations`",
        "write a number, such as `max_iterations = 10`",
    );
    check(&limits("\"10\""), "2: `max_iterations`", "write it without quotes");
    let budget = format!("[agent.budget]\nmax_model_calls = \"many\"\n{CLAUDE}");
    check(&budget, "2: `max_model_calls`", "write a number, such as `max_model_calls = 10`, or");
    let grant = format!("[agent.policy]\ngrant = [\"fs:raed\"]\n{CLAUDE}");
    check(
        &grant,
        "2: grant `fs:raed` is not valid: there is no `fs:raed`\n",
        "did you mean `fs:read`?",
    );
    let tool = format!(
        "{}[[tools]]\nkind = \"builtin\"\nname = \"fs_raed\"\n",
        CLAUDE.replace("anthropic", "ollama")
    );
    check(&tool, "4: there is no built-in tool `fs_raed`", "did you mean `fs_read`?");
    let two = format!("[agent]\nnmae = \"x\"\n[agent.limits]\nmax_iteratoins = 1\n{CLAUDE}");
    check(
        &two,
        "4: unknown field",
        "did you mean `max_iterations`?; `backstop check a.toml` lists all 2 mistakes",
    );
}

/// Spec: C5
#[test]
fn a_model_table_is_named_by_its_header() {
    let ollama = "[model]\nprovider = \"ollama\"\nmodel = \"m\"\n";
    let fallback = |keys: &str| format!("{ollama}[[model.fallback]]\n{keys}");
    let nameless = "provider = \"ollama\"\n";
    refused(
        &fallback(nameless),
        "a.toml:4: [[model.fallback]] names no model\n",
        "add `model = \"…\"` to it",
    );
    let second = format!("model = \"n\"\n{nameless}[[model.fallback]]\n{nameless}");
    refused(&fallback(&second), "a.toml:7: [[model.fallback]] names no model\n", "add `model = ");
    refused(
        &fallback("provider = \"openai\"\nmodel = \"m\"\n"),
        "a.toml:4: no API key",
        "get a key",
    );
    let into = "into [[model.fallback]]";
    let bench = Bench::new();
    bench.write("a.toml", &fallback("provider = \"openai\"\nmodel = \"m\"\n"));
    bench.run(&["run", "a.toml", "hi"]).fails(2, into);
    // A pool entry has the model of `[model]`, so both have none.
    let pool =
        "[model]\nprovider = \"script\"\nscript = \"s\"\n[[model.pool]]\nprovider = \"ollama\"\n";
    bench.write("a.toml", pool);
    bench.write("s", "[[model]]\ntext = \"ok\"\n");
    bench.run(&["run", "a.toml", "hi"]).fails(2, "a.toml:4: [[model.pool]] names no model\n");
}

/// Checks a file and runs it: both report the line, the mistake, and how to fix it.
#[track_caller]
fn mistaken(bench: &Bench, line: usize, what: &str, hint: &str) {
    let check = bench.run(&["check", "agent.toml"]).fails(2, "1 mistake\n");
    assert!(check.out.starts_with(&format!("agent.toml:{line}: {what}")), "{}", check.out);
    assert!(check.out.contains(&format!("\n  hint: {hint}")), "{}", check.out);
    let ran = bench.run(&["run", "agent.toml", "hi"]).fails(2, what);
    assert!(ran.err.starts_with(&format!("error: agent.toml:{line}: ")), "{}", ran.err);
    assert!(ran.err.contains(&format!("\n  hint: {hint}")), "{}", ran.err);
}

const LOOK: &str = "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\nname = \"look\"\n\
    description = \"d\"\ncommand = [\"true\"]\n";

/// Spec: C5
#[test]
fn a_bad_schema_names_the_tool_and_line() {
    let bench = Bench::new();
    let schema = |schema: &str| {
        let other = LOOK.replace("look", "other") + "schema = { type = \"object\" }\n";
        let (_, tool) = LOOK.split_once("[[tools]]").unwrap();
        bench.agent(SAYS, &format!("{other}[[tools]]{tool}{schema}\n"));
    };
    for key in ["schema", "output_schema"] {
        let more = if key == "schema" { "" } else { "schema = { type = \"object\" }\n" };
        schema(&format!(
            "{more}{key} = {{ type = \"object\", properties = {{ n = {{ type = \"numbr\" }} }} }}"
        ));
        let what = "the schema of tool `look` is not valid: ";
        mistaken(&bench, 14, what, "correct `schema` in its [[tools]] table, or `output_schema`");
    }
    schema("schema = { type = \"string\" }");
    mistaken(
        &bench,
        19,
        "`schema` must have `type = \"object\"`",
        "write `schema = { type = \"object\", properties = { … } }`",
    );
}

/// Spec: C5
#[test]
fn an_unknown_tool_choice_names_the_nearest() {
    let bench = Bench::new();
    let tool = format!("{LOOK}schema = {{ type = \"object\" }}\n");
    let check = |choice: &str, hint: &str| {
        bench.agent(SAYS, &format!("tool_choice = \"{choice}\"\n{tool}"));
        mistaken(&bench, 3, &format!("`tool_choice`: no tool named `{choice}`\n"), hint);
    };
    let all = "it is `auto`, `none`, `required` or the name of a tool";
    check("loook", &format!("did you mean `look`? {all}"));
    check("requred", &format!("did you mean `required`? {all}"));
    check("xyz", all);
    bench.agent(SAYS, &format!("tool_choice = \"look\"\n{tool}"));
    bench.run(&["check", "agent.toml"]).ok();
}

/// Spec: C4
#[test]
fn a_store_url_says_where_it_stands() {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"ok\"\n", "");
    let check = |bench: &Bench, args: &[&str], what: &str, hint: &str| {
        let ran = bench.run(args).fails(2, what);
        assert!(ran.err.contains(&format!("hint: {hint}")), "{}", ran.err);
    };
    let run = ["run", "agent.toml"];
    check(
        &bench,
        &["runs", "--store", "foo.db"],
        "--store: invalid",
        "write `--store sqlite:foo.db`",
    );
    check(
        &bench,
        &["runs", "--store", "mysql://u:p@h"],
        "invalid",
        "write `--store sqlite:backstop.db`",
    );
    let bench = bench.with("BACKSTOP_STORE", "sqlite://foo.db");
    check(&bench, &run, "BACKSTOP_STORE: invalid", "run `export BACKSTOP_STORE=sqlite:foo.db`");
    bench.agent("[[model]]\ntext = \"ok\"\n", "[store]\nurl = \"foo.db\"\n");
    check(&bench, &run, "agent.toml:6: invalid", "write `url = \"sqlite:foo.db\"` into [store]");
}

#[test]
fn a_refused_key_names_its_variable() {
    let server = Loopback::serving(|_| Reply::json(401, &json!({ "error": { "message": "no" } })));
    let bench = Bench::new().with("MY_KEY", "canary-key-0123456789");
    let model = format!(
        "[model]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"{}\"\napi_key_env = \"MY_KEY\"\n",
        server.url()
    );
    bench.write("a.toml", &model);
    let ran = bench.run(&["run", "a.toml", "hi"]).fails(1, "hint: check the key in MY_KEY");
    assert!(!ran.err.contains("canary-key"), "{}", ran.err);
}

/// Spec: E7, E10
#[test]
fn an_unknown_model_is_named_with_its_url() {
    let server = Loopback::serving(|_| Reply::json(404, &json!({ "error": { "message": "no" } })));
    let bench = Bench::new().with("OPENAI_API_KEY", "canary-key-0123456789");
    let model = format!(
        "[model]\nprovider = \"openai\"\nmodel = \"gpt-9\"\nbase_url = \"{}/t0ken/v1\"\n",
        server.url()
    );
    bench.write("a.toml", &model);
    let hint = format!("hint: is there a model `gpt-9`? base_url is `{}/…/v1`\n", server.url());
    let ran = bench.run(&["run", "a.toml", "hi"]).fails(1, &hint);
    assert!(ran.err.contains("error: provider.not_found: "), "{}", ran.err);
    assert!(!ran.err.contains("canary") && !ran.err.contains("t0ken"), "{}", ran.err);
}

/// Spec: E7
#[test]
fn one_attempt_was_not_tried_again() {
    let bench = Bench::new();
    bench.agent(
        "[[model]]\nerror = { kind = \"transient\", status = 500 }\n",
        "[agent.retry]\nattempts = 1\n",
    );
    let ran = bench.run(&["run", "agent.toml"]).fails(1, "provider.transient");
    assert!(
        !ran.err.contains("tried again") && ran.err.contains("raise `attempts`"),
        "{}",
        ran.err
    );
}

#[test]
fn an_empty_input_begins_no_run() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent("[[model]]\ntext = \"ok\"\n", "");
    bench.run(&["run", "agent.toml", "--input", " "]).fails(2, "--input: the input is empty");
    bench
        .run(&["run", "agent.toml", "--input", "-"])
        .fails(2, "standard input: the input is empty");
    bench.write(
        "e.toml",
        "[agent]\ninput = \"\"\n[model]\nprovider = \"script\"\nscript = \"script.toml\"\n",
    );
    bench.run(&["run", "e.toml"]).fails(2, "e.toml: `input` in [agent]: the input is empty");
    assert!(!bench.path().join("x.db").exists());
    bench
        .run(&["run", "agent.toml", "--label", "x"])
        .fails(2, "write KEY=VALUE, such as ticket=4711");
}

#[test]
fn an_unknown_code_names_the_nearest() {
    let bench = Bench::new();
    let ran = bench.run(&["errors", "list", "--code", "tool.execution_faild"]);
    ran.fails(2, "there is no such code; did you mean `tool.execution_failed`?");
    bench.run(&["errors", "list", "--code", "nonsense"]).fails(2, "`backstop codes` lists them");
    bench.run(&["errors", "list", "--code", "tool.execution_failed"]).ok();
}

/// Spec: D15
#[test]
fn a_repeated_label_key_is_refused() {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"ok\"\n", "");
    let twice = ["--label", "a=1", "--label", "a=2"];
    for command in
        [&["run", "agent.toml"][..], &["runs"], &["enqueue", "agent.toml", "--input", "x"]]
    {
        let refused = bench.run(&[command, &twice].concat());
        refused.fails(2, "--label a=… is given more than once");
    }
    let two = ["--label", "a=1", "--label", "b=1"];
    bench.run(&[&["run", "agent.toml"][..], &two].concat()).ok();
    assert_eq!(bench.run(&[&["runs", "--json"][..], &two].concat()).ok().json().len(), 1);
    let help = bench.run(&["runs", "--help"]).ok().out;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("with other keys; all labels must match"), "{help}");
}
