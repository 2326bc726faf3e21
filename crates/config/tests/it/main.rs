//! Files with mistakes in them, as their authors meet them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod behaviors;
mod environment;
mod mcp;
mod mistakes;
mod operators;
mod scripted;

use backstop_config::{AgentFile, ConfigError, Scenario, read_script};
use backstop_provider::{ModelSettings, ReasoningEffort, ToolChoice};

fn written(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.toml");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn agent_error(text: &str) -> ConfigError {
    let (_folder, path) = written(text);
    AgentFile::read(&path).unwrap_err()
}

fn scenario_error(text: &str) -> ConfigError {
    let (_folder, path) = written(text);
    Scenario::read(&path).unwrap_err()
}

#[track_caller]
fn check(error: &ConfigError, line: usize, what: &str, hint: &str) {
    assert_eq!(error.line(), Some(line), "{error}");
    assert!(error.to_string().ends_with(what), "{error}");
    assert_eq!(error.hint().unwrap_or_default(), hint);
}

/// Spec: C6
#[test]
fn an_output_beyond_memory_is_refused() {
    for bytes in ["16777217", "9223372036854775807", "9223372036854775808", "-1"] {
        let text = format!(
            "name = \"a\"\ninput = \"x\"\n[[tools]]\nname = \"t\"\ncalls = [{{ output_bytes = {bytes} }}]\n"
        );
        let error = scenario_error(&text);
        assert_eq!(error.line(), Some(5), "{error}");
    }
}

/// Spec: C5, C6
#[test]
fn inexact_number_is_refused_by_key_and_line() {
    let places: [fn(&str) -> String; 3] = [
        |n| format!("[[model]]\ntool_calls = [{{ name = \"t\", arguments = {{ n = {n} }} }}]\n"),
        |n| {
            format!(
                "[[tools]]\nname = \"t\"\ncalls = [{{ output = {{ rows = [{{ n = {n} }}] }} }}]"
            )
        },
        |n| {
            format!(
                "[[tools]]\nname = \"t\"\n\nschema = {{ type = \"object\", properties = {{ n = {{ n = {n} }} }} }}"
            )
        },
    ];
    for place in places {
        for n in ["0.12345678901234567890", "18446744073709551616", "1e999", "inf", "2026-01-01"] {
            let text = format!("name = \"a\"\ninput = \"x\"\n{}", place(n));
            let line = text.lines().position(|line| line.contains(n)).unwrap() + 1;
            let error = scenario_error(&text);
            assert_eq!(error.line(), Some(line), "{error}");
            assert!(error.to_string().contains(": `"), "{n}: {error}");
        }
        for n in ["9007199254740993", "18446744073709551615", "0.1", "1e300"] {
            let text = format!("name = \"a\"\ninput = \"x\"\n{}", place(n));
            let (_folder, path) = written(&text);
            Scenario::read(&path).unwrap();
        }
    }
    let agent = agent_error(&format!("{MODEL}[model.extra_body]\nx = 0.12345678901234567890\n"));
    check(
        &agent,
        4,
        "`x`: a number with more digits than can be kept: 0.12345678901234567890",
        "write it with at most 15 digits, or in quotes as text",
    );
    let (_folder, path) =
        written("[[model]]\ntool_calls = [{ name = \"t\", arguments = { n = nan } }]\n");
    check(&read_script(&path).unwrap_err(), 2, "`n`: no JSON number: nan", "write a finite number");
}

/// Spec: C5
#[test]
fn unknown_key_is_named_with_the_nearest() {
    let error = agent_error("[model]\nprovider = \"script\"\n[agent.limits]\nmax_iteration = 3\n");
    check(&error, 4, "unknown field `max_iteration`", "did you mean `max_iterations`?");
    let error = agent_error("[model]\nprovider = \"antropic\"\n");
    check(&error, 2, "unknown variant `antropic`", "did you mean `anthropic`?");
    let error = scenario_error("name = \"x\"\ninput = \"y\"\n[[model]]\ntxt = \"z\"\n");
    check(&error, 4, "unknown field `txt`", "did you mean `text`?");
    let error = scenario_error(
        "name = \"x\"\ninput = \"y\"\n[[model]]\nerror = { kind = \"rate_limit\" }\n",
    );
    check(&error, 4, "unknown variant `rate_limit`", "did you mean `rate_limited`?");
    let error = scenario_error("name = \"x\"\ninput = \"y\"\n[qqq]\n");
    assert!(
        error.hint().is_some_and(|hint| hint.starts_with("known here: name, input")),
        "{error}"
    );
}

/// Spec: A4, C5
#[test]
fn limits_of_approvals_go_with_an_approval() {
    let tool = |keys: &str| format!("{MODEL}[[tools]]\nkind = \"builtin\"\nname = \"t\"\n{keys}\n");
    for key in ["expires_after_ms = 5", "approvers = [\"ops\"]"] {
        let name = key.split(' ').next().unwrap();
        let what = format!("`{name}` goes with `approval = true`");
        check(&agent_error(&tool(&format!("approval = false\n{key}"))), 7, &what, "");
        let scenario = format!("name = \"a\"\ninput = \"x\"\n[[tools]]\nname = \"t\"\n{key}\n");
        check(&scenario_error(&scenario), 5, &what, "");
        let (_folder, path) = written(&tool(&format!("approval = true\n{key}")));
        AgentFile::read(&path).unwrap();
    }
    // Two built-in tools ask by themselves.
    for name in ["fs_write", "shell"] {
        let asks = tool("approvers = [\"ops\"]").replace("\"t\"", &format!("\"{name}\""));
        let (_folder, path) = written(&asks);
        AgentFile::read(&path).unwrap();
        let silent = agent_error(&format!("{asks}approval = false\n"));
        check(&silent, 6, "`approvers` goes with `approval = true`", "");
    }
    let approved = |key: &str| agent_error(&tool(&format!("approval = true\n{key}")));
    let mend = "write a number from 1 on, or take it out to keep the default";
    check(&approved("expires_after_ms = 0"), 7, "`expires_after_ms` must be at least 1", mend);
    check(&approved("approvers = [\"ops\", \" \"]"), 7, "`approvers` must hold no empty name", "");
    let denied = "name = \"a\"\ninput = \"x\"\n[[approvals]]\nverdict = \"deny\"\narguments = {}\n";
    check(&scenario_error(denied), 5, "`arguments` goes with `verdict = \"approve\"`", "");
}

#[test]
fn unsupported_tables_are_refused_not_ignored() {
    let error = agent_error("[model]\nprovider = \"script\"\n[telemetry]\notlp = \"x\"\n");
    assert!(error.to_string().ends_with("`telemetry` is not supported yet"), "{error}");
    // A table is named, and not the key before it.
    let error = scenario_error("name = \"a\"\ninput = \"x\"\n[model]\nprovider = \"script\"\n");
    let error = error.to_string();
    assert!(error.contains(":3: `model`: invalid type"), "{error}");
}

#[test]
fn memory_of_this_process_is_by_session() {
    let memory = |table: &str| format!("[model]\nprovider = \"script\"\n[memory]\n{table}\n");
    let mend =
        "a memory of this process is by session: take `scope` out, or write kind = \"state\"";
    let error = agent_error(&memory("kind = \"recent\"\nscope = \"agent\""));
    check(&error, 5, "`scope` goes with kind = \"state\"", mend);
    check(
        &agent_error(&memory("scope = \"all\"")),
        4,
        "unknown variant `all`",
        "known here: agent, global, session",
    );
    check(&agent_error(&memory("size = 3")), 4, "unknown field `size`", "known here: kind, scope");
}

#[test]
fn other_mistakes_are_located_too() {
    check(&agent_error("[model]\nprovider = 3\n"), 2, "wanted string or table", "");
    check(&agent_error("[model\n"), 1, "unclosed table, expected `]`", "");
    let twice = agent_error("[agent]\ninput = \"x\"\ninput = \"y\"\n");
    check(&twice, 3, "`input`: duplicate key", "");
    let missing = AgentFile::read(std::path::Path::new("/no/such/file.toml")).unwrap_err();
    assert!(missing.to_string().ends_with("/no/such/file.toml: cannot be read"), "{missing}");
}

/// Returns the first block of TOML of a page.
fn block(page: &str) -> &str {
    let (_, rest) = page.split_once("```toml\n").unwrap();
    rest.split_once("```").unwrap().0
}

/// The pages show every key that is read.
#[test]
fn the_files_of_the_pages_are_read() {
    let (_folder, path) = written(block(include_str!("../../../../docs/agent-files.md")));
    let agent = AgentFile::read(&path).unwrap();
    assert_eq!((agent.tools.len(), agent.model.fallback.len()), (2, 1));
    let (_folder, path) = written(block(include_str!("../../../../docs/scenarios.md")));
    assert_eq!(Scenario::read(&path).unwrap().tools.len(), 1);
}

const MODEL: &str = "[model]\nprovider = \"script\"\n";

/// Spec: C5
#[test]
fn out_of_range_numbers_name_key_and_line() {
    #[track_caller]
    fn refused(table: &str, key: &str, values: &[&str]) {
        for value in values {
            let text = format!("{MODEL}{table}\n# comment = 1\n{key} = {value}\n");
            let error = agent_error(&text);
            let line = text.lines().position(|line| line.starts_with(key)).unwrap() + 1;
            assert_eq!(error.line(), Some(line), "{key} = {value}: {error}");
            assert!(error.to_string().contains(&format!("`{key}`")), "{key} = {value}: {error}");
        }
    }
    let whole = ["0", "-1", "0x0", "-0"];
    for key in [
        "max_iterations",
        "max_concurrent_tools",
        "tool_timeout_ms",
        "hook_timeout_ms",
        "memory_timeout_ms",
        "store_timeout_ms",
    ] {
        refused("[agent.limits]", key, &whole);
    }
    refused("[agent.retry]", "attempts", &whole);
    refused("[agent.retry]", "base_ms", &["-1"]);
    refused("", "max_output_tokens", &whole);
    let beyond = ["9", "2.1", "2.0000002", "-0.1", "nan", "-nan", "inf", "-inf", "1e3", "1e99"];
    refused("", "temperature", &beyond);
    refused("", "top_p", &["1.1", "-0.1", "nan"]);
    refused("", "stop", &["\"\"", "[\"a\", \"\"]", "[1]"]);
    refused("", "tool_choice", &["\"\""]);
    refused("[model.timeouts]", "attempt_ms", &whole);
    let tool = "[[tools]]\nkind = \"command\"\nname = \"t\"";
    refused(tool, "timeout_ms", &whole);
    refused("[agent.price]\noutput_per_mtok = 1", "input_per_mtok", &["nan", "inf", "-1.0"]);
    refused("[agent.budget]", "max_model_calls", &["-1"]);

    let taken = "temperature = 2\nmax_output_tokens = 0x10\n[agent.limits]\ntool_timeout_ms = 1\n";
    let (_folder, path) = written(&format!("{MODEL}{taken}"));
    let file = AgentFile::read(&path).unwrap();
    assert_eq!((file.model.temperature, file.model.max_output_tokens), (Some(2.0), Some(16)));
}

/// Spec: P12
#[test]
fn settings_of_the_model_are_read() {
    let (_folder, path) = written(&format!(
        "{MODEL}tool_choice = \"sql\"\ntop_p = 0.5\nstop = \"END\"\nseed = -7\n\
         reasoning_effort = \"xhigh\"\nmax_output_tokens = 9\ntemperature = 0.0\n"
    ));
    let expected = ModelSettings::new()
        .tool_choice(ToolChoice::Tool("sql".into()))
        .top_p(0.5)
        .stop(["END"])
        .seed(-7)
        .reasoning_effort(ReasoningEffort::XHigh)
        .max_output_tokens(9)
        .temperature(0.0);
    assert_eq!(AgentFile::read(&path).unwrap().model.settings(), expected);
    let error = agent_error(&format!("{MODEL}reasoning_effort = \"hihg\"\n"));
    check(&error, 3, "unknown variant `hihg`", "did you mean `high`?");
}

/// Spec: C5, T1
#[test]
fn schemas_of_arguments_describe_an_object() {
    for schema in ["{}", "{ type = \"string\" }", "{ properties = {} }", "{ type = [\"object\"] }"]
    {
        let tool = format!("[[tools]]\nname = \"t\"\nschema = {schema}\n");
        let what = "`schema` must have `type = \"object\"`: arguments are an object";
        let mend = "write `schema = { type = \"object\", properties = { … } }`";
        check(&agent_error(&format!("{MODEL}{tool}kind = \"command\"\n")), 5, what, mend);
        let scenario = scenario_error(&format!("name = \"a\"\ninput = \"x\"\n{tool}"));
        check(&scenario, 5, what, mend);
    }
}

/// Spec: C5, Y1
#[test]
fn grants_that_name_nothing_are_refused() {
    let error = agent_error(&format!(
        "{MODEL}[agent.policy]\ngrant = [\"process:spawn\", \"fs:raed:./logs/**\"]\n"
    ));
    let what = "grant `fs:raed:./logs/**` is not valid: there is no `fs:raed`";
    check(&error, 4, what, "did you mean `fs:read`?");
    for grant in
        ["", " ", "fs:", "fs:read:", "FS:read", "proces:spawn", "network:outbond", "fs:read "]
    {
        let error = agent_error(&format!("{MODEL}[agent.policy]\ngrant = [\n  \"{grant}\",\n]\n"));
        assert_eq!(error.line(), Some(5), "the line of the grant: {grant}: {error}");
    }
    let tool = "[[tools]]\nkind = \"command\"\nname = \"t\"\ncapabilities = [\"fs:raed\"]\n";
    let what = "capability `fs:raed` is not valid: there is no `fs:raed`";
    check(&agent_error(&format!("{MODEL}{tool}")), 6, what, "did you mean `fs:read`?");
}

/// Spec: C5, T15
#[test]
fn names_are_refused_where_they_are_written() {
    fn file(names: &[&str]) -> String {
        let tool = |name: &&str| format!("[[tools]]\nkind = \"command\"\nname = \"{name}\"\n");
        format!("{MODEL}{}", names.iter().map(tool).collect::<String>())
    }
    let (long, longest) = ("x".repeat(65), "x".repeat(64));
    for (name, why) in [
        ("", "is empty"),
        (" ", "begins or ends with a space"),
        ("a ", "begins or ends with a space"),
        ("a\\nb", "has control characters"),
        (&long, "has more than 64 characters"),
        ("ü", "has no ASCII letter or digit"),
    ] {
        let error = agent_error(&file(&["other", name]));
        assert_eq!(error.line(), Some(8), "{name}: {error}");
        assert!(error.to_string().ends_with(why), "{name}: {error}");
    }
    let hint = "give it another name";
    let twice = "there is already a tool named `sql`, in line 5";
    check(&agent_error(&file(&["sql", "sql"])), 8, twice, hint);
    for (one, other, mapped) in [
        ("web.search", "web_search", "web_search"),
        ("süche", "s.che", "s_che"),
        ("2fa", "_2fa", "_2fa"),
    ] {
        let what = format!(
            "tool `{other}` and tool `{one}`, in line 5, are both `{mapped}` to a provider"
        );
        check(&agent_error(&file(&[one, other])), 8, &what, hint);
    }
    let (_folder, path) = written(&file(&["web.search", "web-search", "süche x", &longest]));
    assert_eq!(AgentFile::read(&path).unwrap().tools.len(), 4);

    let hook = "[[hooks]]\nname = \"h\"\npoint = \"run_start\"\naction = \"continue\"\n";
    let error = scenario_error(&format!("name = \"a\"\ninput = \"x\"\n{hook}{hook}"));
    check(&error, 8, "there is already a hook named `h`, in line 4", hint);
}

/// Spec: C5
#[test]
fn the_name_of_a_session_is_checked() {
    let long = "s".repeat(257);
    for (name, why) in [
        (" ", "must not be empty"),
        ("a\\nb", "must not have control characters"),
        (&long, "must have at most 256 bytes"),
    ] {
        let text = format!("name = \"a\"\ninput = \"x\"\nsession = \"{name}\"\n");
        check(&scenario_error(&text), 3, &format!("`session` {why}"), "");
    }
}
