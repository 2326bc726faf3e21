//! Every mistake of a file at once.

use backstop_config::{AgentFile, ConfigError};

/// Checks a file, and returns each mistake's line and text.
fn mistakes(text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    std::fs::write(&path, text).unwrap();
    let checked = AgentFile::check(&path).unwrap();
    let said = |error: &ConfigError| {
        let line = error.line().map_or_else(|| "-".to_owned(), |line| line.to_string());
        format!("{line}: {} ({})", error.what(), error.hint().unwrap_or_default())
    };
    checked.mistakes.iter().map(said).collect()
}

/// Spec: C5
#[test]
fn every_mistake_of_a_file_is_found() {
    let text = "[agent]\nnmae = \"x\"\n[agent.limits]\nmax_iteratoins = 3\ntool_timeout_ms = 0\n\
        [agent.budget]\nmax_model_calls = \"many\"\n[model]\nprovider = \"antropic\"\n\
        temperature = 9\nmodle = \"m\"\n[stroe]\nurl = \"sqlite:x.db\"\n[[tools]]\nkind = \"comand\"\n\
        name = \"t\"\nschema = { type = \"object\", properties = { n = { type = 1.5 } } }\n\
        [[tools]]\nname = \"t\"\ntimeout_ms = 1\n[[mcp]]\nname = \"files\"\n";
    let found = mistakes(text);
    let expected = [
        "2: unknown field `nmae` (did you mean `name`?)",
        "4: unknown field `max_iteratoins` (did you mean `max_iterations`?)",
        "5: `tool_timeout_ms` must be at least 1 (write a number from 1 on, or take it out to keep the default)",
        "7: `max_model_calls`: invalid value: string \"many\", expected",
        "9: `provider`: unknown variant `antropic` (did you mean `anthropic`?)",
        "10: `temperature` must be from 0 to 2, and is 9 (write a number in these bounds, or take it out to keep the provider's own)",
        "11: unknown field `modle` (did you mean `model`?)",
        "12: unknown field `stroe` (did you mean `store`?)",
        "15: `kind`: unknown variant `comand` (did you mean `command`?)",
        "18: missing field `kind` (add `kind = \"command\"` for a program, or",
        "19: there is already a tool named `t`, in line 16 (give it another name)",
        "21: MCP server `files` has neither `command` nor `url`",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found} is not {expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

/// Spec: C5
#[test]
fn a_sound_file_has_no_mistake() {
    assert!(mistakes("[model]\nprovider = \"script\"\nscript = \"s.toml\"\n").is_empty());
    assert_eq!(
        mistakes("[agent]\nname = \"x\"\n"),
        ["1: missing field `model` (add a `[model]` table with `provider` and `model`)"]
    );
    assert_eq!(
        mistakes(""),
        ["1: missing field `model` (add a `[model]` table with `provider` and `model`)"]
    );
}

/// Spec: C5
#[test]
fn all_broken_lines_are_named() {
    let found = mistakes("[agent]\nname = \ninput = \"x\"\n[model\nprovider = \"script\"\n");
    let lines: Vec<&str> = found.iter().filter_map(|it| it.split(':').next()).collect();
    assert_eq!(lines, ["2", "4"], "{found:#?}");
}

/// Spec: C5
#[test]
fn mending_keeps_lines_where_they_are() {
    let found = mistakes(
        "[model]\nprovider = \"script\"\nscript = \"s\"\n[[tools]]\nkind = \"builtin\"\n\
         name = \"a\"\nenv = \"\"\"\nx\ny\"\"\"\ntimeot_ms = 1\n[[tools]]\nkind = \"builtin\"\n\
         name = \"b\"\ncommand = [\"x\", 7]\nidempotnt = true\n",
    );
    let lines: Vec<&str> = found.iter().filter_map(|it| it.split(':').next()).collect();
    assert_eq!(lines, ["7", "10", "14", "15"], "{found:#?}");
}

/// Spec: C5
#[test]
fn amount_as_text_is_one_mistake() {
    for (price, line, what) in [
        (
            "input_per_mtok = \"3\"\noutput_per_mtok = 1",
            2,
            "`input_per_mtok`: invalid type: string",
        ),
        (
            "input_per_mtok = 1\noutput_per_mtok = true",
            3,
            "`output_per_mtok`: invalid type: boolean",
        ),
        ("input_per_mtok = -1.0\noutput_per_mtok = 1", 2, "`input_per_mtok`: invalid value"),
        ("input_per_mtok = 1", 1, "missing field `output_per_mtok`"),
    ] {
        let found = mistakes(&format!("[agent.price]\n{price}\n[model]\nprovider = 3\n"));
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found[0].starts_with(&format!("{line}: {what}")), "{found:#?}");
        assert!(found[1].contains("wanted string or table"), "{found:#?}");
    }
}

/// Spec: C5
#[test]
fn lists_and_single_tables_are_told_apart() {
    let single = |name: &str| format!("`{name}` is a list; an agent file has one `[{name}]` table");
    let model = "[[model.pool]]\nprovider = \"script\"\n";
    for (text, line, what, hint) in [
        ("[[model]]\nprovider = \"script\"\nmodle = 1\n".to_owned(), 1, single("model"), "[[model.fallback]]"),
        (
            "[[model]]\nprovider = \"script\"\nmodle = 1\n[[model]]\nprovider = \"openai\"\n".to_owned(),
            1,
            single("model"),
            "[[model.pool]]",
        ),
        (format!("[model]\nprovider = \"script\"\n{model}modle = 1\n[[agent]]\n"), 6, single("agent"), "write `[agent]`"),
        (
            "[model]\nprovider = \"script\"\n[[agent.limits]]\nmodle = 1\n".to_owned(),
            3,
            single("agent.limits"),
            "write `[agent.limits]`",
        ),
        (
            "[model]\nprovider = \"script\"\n[tools]\nmodle = 1\nname = \"t\"\nkind = \"builtin\"\n".to_owned(),
            3,
            "`tools`: invalid type: map, expected a list".to_owned(),
            "write `[[tools]]`",
        ),
        (
            "[model]\nprovider = \"script\"\n[model.fallback]\nprovider = \"script\"\nmodle = 1\n".to_owned(),
            3,
            "`model.fallback`: invalid type: map, expected a list".to_owned(),
            "write `[[model.fallback]]`",
        ),
    ] {
        let found = mistakes(&text);
        assert_eq!(found.len(), 2, "{text}{found:#?}");
        // What is wrong inside of it is found all the same.
        let (inside, shape): (Vec<_>, Vec<_>) = found.iter().partition(|it| it.contains("modle"));
        assert_eq!(inside.len(), 1, "{found:#?}");
        assert!(shape[0].starts_with(&format!("{line}: {what}")), "{found:#?}");
        assert!(shape[0].contains(hint), "{found:#?}");
    }
}

/// Spec: C5
#[test]
fn first_mistakes_say_what_to_do() {
    let script = "[model]\nprovider = \"script\"\n";
    for (text, expected) in [
        (
            "[model]\nprovider = \"OpenAI\"\n",
            "2: `provider`: unknown variant `OpenAI` (did you mean `openai`?)",
        ),
        (
            "[model]\nprovider = script\n",
            "2: `provider`: string values must be quoted (write `provider = \"…\"`)",
        ),
        (
            &format!("{script}instructions = \"be kind\"\n"),
            "3: unknown field `instructions` (it belongs into `[agent]`)",
        ),
        (
            &format!("[agent]\ntemperature = 0.5\n{script}"),
            "2: unknown field `temperature` (it belongs into `[model]`)",
        ),
        (
            &format!("{script}temperature = \"0.5\"\n"),
            "3: `temperature`: invalid type: string \"0.5\", expected a number (write it without quotes)",
        ),
        (
            &format!("{script}max_output_tokens = \"9\"\n"),
            "3: `max_output_tokens`: invalid type: string \"9\", expected a whole number (write it without quotes)",
        ),
        (
            &format!("{script}stream = \"yes\"\n"),
            "3: `stream`: invalid type: string \"yes\", expected a boolean (write `true` or `false`, without quotes)",
        ),
        (
            &format!("{script}[agent.policy]\ngrant = \"fs:read\"\n"),
            "4: `grant`: invalid type: string \"fs:read\", expected a list (write `grant = [\"…\"]`)",
        ),
        (
            &format!("{script}model = 4.5\n"),
            "3: `model`: invalid type: floating point `4.5`, expected a string (write it in quotes)",
        ),
        (
            &format!("{script}[agent.price]\ninput_per_mtok = 1\n"),
            "3: missing field `output_per_mtok` (add `output_per_mtok = …` to `[agent.price]`)",
        ),
    ] {
        assert_eq!(mistakes(text), [expected], "{text}");
    }
    let key = format!("{script}api_key_env = \"sk-canary-0123456789\"\n");
    let found = mistakes(&key);
    assert!(found[0].starts_with("3: `api_key_env` must be the name of a variable"), "{found:?}");
    assert!(!found[0].contains("canary"), "{found:?}");
}

/// Spec: B1, C5
#[test]
fn budgets_that_stop_every_run_are_refused() {
    let model = "[model]\nprovider = \"script\"\nscript = \"s.toml\"\n";
    let of =
        |key: &str, value: &str| mistakes(&format!("{model}[agent.budget]\n{key} = {value}\n"));
    let counted = [
        "max_model_calls",
        "max_input_tokens",
        "max_output_tokens",
        "max_total_tokens",
        "max_wall_ms",
        "max_events",
    ];
    for key in counted {
        let said = format!(
            "5: `{key}` must be at least 1, or \"off\" (write a number from 1 on, or `{key} = \"off\"`, or \
             take it out to keep the default)"
        );
        assert_eq!(of(key, "0"), [said]);
        assert_eq!(of(key, "1"), [""; 0]);
        assert_eq!(of(key, "\"off\""), [""; 0]);
    }
    // Without tools, without agents below it, or with a model that costs nothing, a run can still answer.
    assert_eq!(of("max_tool_calls", "0"), [""; 0]);
    assert_eq!(of("max_depth", "0"), [""; 0]);
    assert_eq!(of("max_cost_usd", "0"), [""; 0]);
}

/// Spec: B4, C5
#[test]
fn every_mistake_of_a_limit_is_found() {
    let model = "[model]\nprovider = \"script\"\nscript = \"s.toml\"\n";
    let check = |limits: &str, expected: &[&str]| {
        let found = mistakes(&format!("{model}{limits}"));
        assert_eq!(found.len(), expected.len(), "{limits}: {found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} is not {expected}");
        }
    };
    let limit = |scope: &str, per: &str, max: &str| {
        format!("[[limit]]\nscope = \"{scope}\"\nper = \"{per}\"\nmax_cost_usd = {max}\n")
    };
    check(&limit("label:tenant", "month", "0.5"), &[]);
    check(&(limit("agent", "day", "1") + &limit("agent", "month", "20")), &[]);
    check(
        &limit("agnet", "day", "1"),
        &["5: `scope`: unknown variant `agnet` (did you mean `agent`?)"],
    );
    check(
        &limit("label:", "day", "1"),
        &["5: `scope`: unknown variant `label:` (did you mean `label:KEY`?)"],
    );
    check(
        &limit("agent", "week", "1"),
        &["6: `per`: unknown variant `week` (known here: day, month)"],
    );
    for (max, said) in [("0", "0"), ("0.0", "0"), ("-1.5", "-1.5"), ("nan", "NaN"), ("inf", "inf")]
    {
        let expected = format!("7: `max_cost_usd` must be an amount above 0, and is {said}");
        check(&limit("agent", "day", max), &[&expected]);
    }
    let missing =
        |field: &str| format!("4: missing field `{field}` (add `{field} = …` to `[[limit]]`)");
    let (scope, per) = (missing("scope"), missing("per"));
    check("[[limit]]\n", &[&scope, &per, &missing("max_cost_usd")]);
    check(
        "[limit]\nscope = \"agent\"\nper = \"day\"\nmax_cost_usd = 1\n",
        &["4: `limit`: invalid type: map, expected a list (write `[[limit]]`)"],
    );
    let double = limit("session", "day", "1") + &limit("session", "day", "2");
    let there =
        "8: there is already a limit of `session` per day, in line 4 (take one of them out)";
    check(&double, &[there]);
    let unknown = limit("agent", "day", "1") + "max_tokens = 5\n";
    check(&unknown, &["8: unknown field `max_tokens`"]);
}
