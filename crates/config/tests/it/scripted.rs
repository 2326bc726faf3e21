//! Names that a scenario's hooks, calls and expectations have, and what they can do.

use backstop_config::{Scenario, Unused};

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

fn hook(more: &str) -> String {
    format!("[[tools]]\nname = \"pay\"\n[[hooks]]\nname = \"h\"\n{more}\n")
}

/// Spec: C6
#[test]
fn hooks_are_called_where_they_say() {
    let at = "point = \"before_tool\"\naction = \"continue\"";
    refused(
        &hook(&format!("{at}\ntool = \"pya\"")),
        9,
        "`tool`: there is no tool `pya`",
        "known here: pay, get_error_detail, get_tool_result",
    );
    refused(
        &hook("point = \"run_start\"\naction = \"continue\"\ntool = \"pay\""),
        9,
        "`tool` goes with `point = \"before_tool\"` or `\"after_tool\"`",
        "",
    );
    refused(
        &hook("point = \"before_model\"\naction = { replace_arguments = { a = 1 } }"),
        8,
        "`replace_arguments` goes with `point = \"before_tool\"`",
        "",
    );
    for tool in ["pay", "get_error_detail", "clerk"] {
        let operator = "[[operator]]\nname = \"clerk\"\n";
        scenario(&format!("{}{operator}", hook(&format!("{at}\ntool = \"{tool}\""))));
    }
    // An operator has tools of its own.
    let below = "[[operator]]\nname = \"b\"\n[[operator.tools]]\nname = \"read\"\n[[operator.hooks]]\n\
                 name = \"h\"\npoint = \"after_tool\"\naction = \"continue\"\n";
    scenario(&format!("{below}tool = \"read\"\n"));
    let line = "`tool`: there is no tool `pay`";
    refused(
        &format!("[[tools]]\nname = \"pay\"\n{below}tool = \"pay\"\n"),
        13,
        line,
        "known here: read, b, get_error_detail, get_tool_result",
    );
}

/// Spec: C6
#[test]
fn scripted_call_has_one_end() {
    let call = |call: &str| format!("[[tools]]\nname = \"t\"\ncalls = [{{ {call} }}]\n");
    let hint = "take one of them out, or make two calls of them";
    for (ends, what) in [
        ("output = 1, error = \"x\"", "`output` and `error`: a call has one end"),
        ("error = \"x\", panic = \"y\"", "`error` and `panic`: a call has one end"),
        ("output = 1, output_bytes = 2", "`output` and `output_bytes`: a call has one end"),
    ] {
        refused(&call(ends), 5, what, hint);
    }
    for key in ["code = \"E\"", "retryable = true", "retry_after_ms = 5"] {
        let name = key.split(' ').next().unwrap();
        let what = format!("`{name}` goes with `error = \"…\"`");
        refused(&call(&format!("output = 1, {key}")), 5, &what, "");
    }
    scenario(&call("hang_ms = 5, error = \"x\", code = \"E\", retryable = true"));
    scenario(&call("ask = { message = \"m\" }, output = 1"));
}

/// Spec: C6
#[test]
fn expected_events_are_known() {
    let expect = |events: &str| format!("[expect]\nevents = [{events}]\n");
    scenario(&expect("\"run.started\", \"…\", \"run.finished\""));
    refused(
        &expect("\"…\", \"run.finnished\""),
        4,
        "`events`: there is no event `run.finnished`",
        "did you mean `run.finished`?",
    );
}

/// Spec: C6
#[test]
fn unused_parts_are_allowed_by_that_word() {
    assert_eq!(scenario("unused = \"allowed\"\n").unused, Some(Unused::Allowed));
    assert_eq!(scenario("").unused, None);
    assert_eq!(scenario_error(&format!("{HEAD}unused = true\n")).line(), Some(3));
}
