//! Operators, signals and probes of scenario files.

use backstop_config::{ProbeVerdict, Scenario};

use crate::{check, scenario_error, written};

const HEAD: &str = "name = \"a\"\ninput = \"x\"\n";

fn scenario(rest: &str) -> Scenario {
    let (_folder, path) = written(&format!("{HEAD}{rest}"));
    Scenario::read(&path).unwrap()
}

#[track_caller]
fn refused(rest: &str, line: usize, what: &str, hint: &str) {
    check(&scenario_error(&format!("{HEAD}{rest}")), line, what, hint);
}

/// Spec: C6
#[test]
fn an_operator_has_tables_of_its_own() {
    let read = scenario(
        "entry = \"b\"\n[[operator]]\nname = \"b\"\n[operator.agent.budget]\nmax_model_calls = 3\n\
         [operator.agent.policy]\ngrant = [\"process:spawn\"]\n[[operator.model]]\ntext = \"hi\"\n\
         [[operator.tools]]\nname = \"t\"\n[operator.memory]\nentries = [\"m\"]\n\
         [[operator.hooks]]\nname = \"t\"\npoint = \"run_start\"\naction = \"continue\"\n\
         [[operator]]\nname = \"c\"\n[[operator.tools]]\nname = \"t\"\n",
    );
    assert_eq!(read.entry.as_deref(), Some("b"));
    let [b, c] = &read.operator[..] else { panic!("{:?}", read.operator) };
    assert_eq!((b.model.len(), b.tools.len(), b.hooks.len()), (1, 1, 1));
    assert_eq!(b.agent.budget().max_model_calls, Some(3));
    assert!(b.memory.is_some() && c.memory.is_none() && c.model.is_empty());
}

/// Spec: O6, C6
#[test]
fn workflows_that_are_not_whole_are_refused() {
    let kinds = "add `kind = \"sequence\"`, `parallel`, `route`, `map` or `supervise`";
    let either = "take it out, or take `kind` out: an operator is an agent or a workflow";
    let keys = "take it out; `limit` is of `parallel`, `map` and `supervise`, `policy` of `parallel` and \
                `map`, `restart` of `supervise`";
    let cases = [
        ("steps = [\"a\"]", 6, "`steps`: operator `b` has no `kind`", kinds),
        ("limit = 2", 6, "`limit`: operator `b` has no `kind`", kinds),
        (
            "kind = \"sequence\"\nsteps = [\"a\"]\n[[operator.model]]\ntext = \"x\"",
            8,
            "`model`: operator `b` is a workflow",
            either,
        ),
        (
            "kind = \"sequence\"",
            6,
            "`steps`: this kind of workflow needs at least one operator",
            "write `steps = [\"a\", \"b\"]`",
        ),
        (
            "kind = \"map\"\nsteps = [\"a\", \"b\"]",
            7,
            "`steps`: this kind of workflow needs exactly one operator",
            "write `steps = [\"a\"]`",
        ),
        (
            "kind = \"route\"\nsteps = [\"a\"]",
            7,
            "`steps`: this kind of workflow needs the operator that chooses, and those it chooses from",
            "write `steps = [\"c\", \"a\", \"b\"]`",
        ),
        (
            "kind = \"sequence\"\nsteps = [\"xyz\"]",
            7,
            "`steps`: there is no operator named `xyz`",
            "known here: b, a",
        ),
        (
            "kind = \"sequence\"\nsteps = [\"a\"]\nlimit = 2",
            8,
            "`limit`: this kind of workflow has none",
            keys,
        ),
        (
            "kind = \"map\"\nsteps = [\"a\"]\nrestart = \"never\"",
            8,
            "`restart`: this kind of workflow has none",
            keys,
        ),
        (
            "kind = \"parallel\"\nsteps = [\"a\"]\nlimit = 0",
            8,
            "`limit` must be at least 1",
            "write 1 or more",
        ),
    ];
    for (rest, line, what, hint) in cases {
        let rest = format!("[[operator]]\nname = \"b\"\n{rest}\n[[operator]]\nname = \"a\"\n");
        refused(&rest, line - 1, what, hint);
    }
    let unknown = "[[operator]]\nname = \"b\"\nkind = \"sequense\"\n";
    let error = scenario_error(&format!("{HEAD}{unknown}"));
    assert!(error.to_string().contains("sequense"), "{error}");
}

/// Spec: C5, C6
#[test]
fn operators_have_names_of_their_own() {
    let hint = "give it another name: agents call an operator as a tool of its name";
    let b = "[[operator]]\nname = \"b\"\n";
    refused(&format!("{b}{b}"), 6, "there is already an operator named `b`, in line 4", hint);
    let tool = "[[tools]]\nname = \"b\"\n";
    refused(&format!("{tool}{b}"), 6, "there is already a tool named `b`, in line 4", hint);
    refused(&format!("{b}{tool}"), 6, "there is already an operator named `b`, in line 4", hint);
    let below = "[[operator]]\nname = \"c\"\n[[operator.tools]]\nname = \"b\"\n";
    refused(&format!("{b}{below}"), 8, "there is already an operator named `b`, in line 4", hint);
    let own = "[agent]\nname = \"b\"\n";
    refused(&format!("{own}{b}"), 6, "there is already an agent named `b`, in line 4", hint);
    let alike = "[[operator]]\nname = \"b.c\"\n[[operator]]\nname = \"b_c\"\n";
    let what = "operator `b_c` and operator `b.c`, in line 4, are both `b_c` to a provider";
    refused(alike, 6, what, hint);
    let error = scenario_error(&format!("{HEAD}[[operator]]\nname = \"\"\n"));
    assert_eq!(error.line(), Some(4), "{error}");
    refused(
        "[[operator]]\nname = \"b\"\n[operator.agent]\nname = \"c\"\n",
        6,
        "`name`: the agent of operator `b` cannot be named `c`",
        "take it out; an operator has the name it is called by",
    );
    refused(
        "[[operator]]\nname = \"b\"\n[[operator.tools]]\nname = \"t\"\n[[operator.tools]]\nname = \"t\"\n",
        8,
        "there is already a tool named `t`, in line 6",
        "give it another name",
    );
}

/// Spec: C5, C6
#[test]
fn an_entry_is_an_operator() {
    let operators = "[[operator]]\nname = \"clerk\"\n[[operator]]\nname = \"cashier\"\n";
    let what = "`entry`: there is no operator named `clerc`";
    refused(&format!("entry = \"clerc\"\n{operators}"), 3, what, "did you mean `clerk`?");
    let what = "`entry`: there is no operator named `x`";
    let hint = "known here: clerk, cashier";
    refused(&format!("entry = \"x\"\n{operators}"), 3, what, hint);
    let hint = "add an `[[operator]]` of this name, or take `entry` out";
    refused("entry = \"x\"\n", 3, what, hint);
    assert_eq!(scenario("entry = \"own\"\n[agent]\nname = \"own\"\n").entry.unwrap(), "own");
    let error = scenario_error("name = \"a\"\n[[operator]]\nname = \"b\"\n");
    assert!(error.to_string().contains("missing field `input`"), "{error}");
}

/// Spec: C5
#[test]
fn unknown_keys_of_operators_are_named() {
    let b = "[[operator]]\nname = \"b\"\n";
    refused(&format!("{b}modle = 1\n"), 5, "unknown field `modle`", "did you mean `model`?");
    refused(
        &format!("{b}[operator.agent.budget]\nmax_model_call = 1\n"),
        6,
        "unknown field `max_model_call`",
        "did you mean `max_model_calls`?",
    );
    let hint = "it belongs into `[operator.agent.budget]`";
    refused(&format!("{b}max_model_calls = 1\n"), 5, "unknown field `max_model_calls`", hint);
    refused("[[operator]]\n", 3, "missing field `name`", "add `name = …` to `[[operator]]`");
    refused(
        "[operator]\nname = \"b\"\n",
        3,
        "`operator`: invalid type: map, expected a list",
        "write `[[operator]]`",
    );
    refused(
        &format!("{b}[[operator.agent]]\nname = \"b\"\n"),
        5,
        "`agent` is a list; an operator has one table of this name",
        "write `[operator.agent]`",
    );
    refused(
        "[[agent]]\nname = \"b\"\n",
        3,
        "`agent` is a list; a scenario has one table of this name",
        "write `[agent]`",
    );
    let approvers = format!("{b}[[operator.tools]]\nname = \"t\"\napprovers = [\"ops\"]\n");
    refused(&approvers, 7, "`approvers` goes with `approval = true`", "");
}

/// Spec: C5, C6
#[test]
fn signals_have_a_time_and_a_name() {
    let read = scenario("[[signals]]\nat_ms = 5\nname = \"look\"\ndata = { at = [1] }\n");
    assert_eq!((read.signals[0].at_ms, read.signals[0].name.as_str()), (5, "look"));
    assert_eq!(read.signals[0].data["at"][0], 1);
    assert!(scenario("[[signals]]\nat_ms = 5\nname = \"cancel\"\n").signals[0].data.is_null());
    let hint = "write `data = \"…\"`, which the model is told";
    let what = "`data` of an `input` must be a text";
    refused("[[signals]]\nat_ms = 5\nname = \"input\"\n", 5, what, hint);
    refused("[[signals]]\nat_ms = 5\nname = \"input\"\ndata = 7\n", 6, what, hint);
    refused("[[signals]]\nat_ms = 5\nname = \" \"\n", 5, "`name` must not be empty", "");
    refused(
        "[[signals]]\nname = \"cancel\"\n",
        3,
        "missing field `at_ms`",
        "add `at_ms = …` to `[[signals]]`",
    );
    let what = "unknown field `at`";
    refused("[[signals]]\nat = 5\nname = \"cancel\"\n", 4, what, "did you mean `at_ms`?");
}

/// Spec: C5, T14
#[test]
fn words_about_probes_go_with_a_probe() {
    let tool = |keys: &str| format!("[[tools]]\nname = \"t\"\n{keys}\n");
    let read = scenario(&tool("probe = \"did_not\"\nprobe_is_final = true"));
    assert_eq!(read.tools[0].probe, Some(ProbeVerdict::DidNot));
    let what = "`probe_output` goes with `probe = \"happened\"`";
    refused(&tool("probe = \"unknown\"\nprobe_output = 1"), 6, what, "");
    refused(&tool("probe_is_final = true"), 5, "`probe_is_final` goes with `probe`", "");
    let what = "`probe`: unknown variant `didnot`";
    refused(&tool("probe = \"didnot\""), 5, what, "did you mean `did_not`?");
}
