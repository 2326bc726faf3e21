//! `[[behavior]]` of agent files.

use std::time::Duration;

use backstop_config::{AgentFile, BehaviorAction, BehaviorStart};
use backstop_process::Credential;

use crate::{agent_error, check, written};

const BEFORE: &str = "[model]\nprovider = \"script\"\n[agent.policy]\ngrant = [\"fs:read\"]\n";

/// Spec: X8
#[test]
fn behaviors_are_read() {
    let (_folder, path) = written(
        "[model]\nprovider = \"script\"\n\
         [agent.policy]\ngrant = [\"process:spawn\", \"network:outbound:*.example.com\"]\n\
         [[behavior]]\nname = \"tell ops\"\non = \"run.failed[reason=provider.*]\"\n\
         command = [\"./notify.sh\", \"-v\"]\n\
         [[behavior]]\nname = \"b.2x\"\non = [\"run.failed\", \"approval.requested\"]\n\
         url = \"https://hooks.example.com/a?b\"\ntimeout_ms = 500\nfrom = \"start\"\n\
         [[behavior]]\nname = \"c\"\non = \"warning\"\nurl = \"http://[::1]:9/\"\n\
         headers = { Authorization = \"env:TOKEN\", x-tenant = \"acme\" }\nsigning_key = \"file:key\"\n",
    );
    let file = AgentFile::read(&path).unwrap();
    let recorded = AgentFile::from_record(&path, file.source().clone()).unwrap();
    assert_eq!(recorded.behaviors, file.behaviors);
    let [tell, other, local] = file.behaviors.as_slice() else { panic!("{:?}", file.behaviors) };
    assert_eq!((tell.name(), tell.timeout()), ("tell ops", Duration::from_secs(30)));
    assert_eq!(tell.patterns().to_string(), "run.failed[reason=provider.*]");
    assert_eq!(tell.start(), BehaviorStart::Now);
    let command = ["./notify.sh", "-v"].map(str::to_owned).to_vec();
    assert_eq!(*tell.action(), BehaviorAction::Command(command));

    assert_eq!(
        (other.timeout(), other.start()),
        (Duration::from_millis(500), BehaviorStart::Start)
    );
    assert_eq!(other.patterns().to_string(), "run.failed or approval.requested");
    let BehaviorAction::Url(hook) = other.action() else { panic!("{other:?}") };
    assert_eq!(hook.url.as_str(), "https://hooks.example.com/a?b");
    assert!(hook.headers.is_empty() && hook.signing_key.is_none());
    // On this machine, it needs no grant.
    let BehaviorAction::Url(hook) = local.action() else { panic!("{local:?}") };
    let is_credential = |name: &str| hook.headers[name].is_credential();
    assert!(is_credential("Authorization") && !is_credential("x-tenant"));
    assert_eq!(hook.signing_key, Some(Credential::file("key")));
}

/// Spec: X1, X8
#[test]
fn mistakes_of_behaviors_name_line_and_remedy() {
    let name =
        "write 1 to 64 ASCII letters, digits, spaces, `_`, `-` and `.`: its record is `sub_NAME`";
    let url = "write `url = \"http://127.0.0.1:9000/hook\"`";
    let reference = "write where it is kept: `env:NAME`, `file:PATH` or `command:…`";
    let local = "url = \"http://127.0.0.1\"\n";
    for (text, line, what, hint) in [
        (
            format!("name = \"a/b\"\non = \"warning\"\n{local}"),
            6,
            "behavior: the name `a/b` has other characters than ASCII letters, digits, spaces, `_`, `-` and `.`",
            name,
        ),
        (
            format!("name = \"a.1\"\non = \"warning\"\n{local}"),
            6,
            "behavior: the name `a.1` ends with a dot and a number, as the segments of its record do",
            name,
        ),
        (
            format!(
                "name = \"a\"\non = \"warning\"\n{local}[[behavior]]\nname = \"a\"\non = \"warning\"\n{local}"
            ),
            10,
            "there is already a behavior named `a`, in line 6",
            "give it another name",
        ),
        (
            format!("name = \"a\"\non = \"run.faild\"\n{local}"),
            7,
            "`on`: invalid pattern at column 1: there is no event type `run.faild`",
            "did you mean `run.failed`?",
        ),
        (
            format!("name = \"a\"\non = [\n\"warning\",\n\"run.failed[raeson=x]\",\n]\n{local}"),
            9,
            "`on`: invalid pattern at column 12: `run.failed` has no field `raeson`",
            "did you mean `reason`?",
        ),
        (
            format!("name = \"a\"\non = []\n{local}"),
            7,
            "`on`: invalid pattern at column 1: expected a pattern, found none",
            "write `on = \"run.failed\"`, or a list of up to 16 patterns",
        ),
        (
            format!("name = \"a\"\non = 3\n{local}"),
            7,
            "`on` must be a text, or a list of texts",
            "",
        ),
        (
            format!("name = \"a\"\n{local}"),
            5,
            "missing field `on`",
            "add `on = …` to `[[behavior]]`",
        ),
        (
            format!("on = \"warning\"\n{local}"),
            5,
            "missing field `name`",
            "add `name = …` to `[[behavior]]`",
        ),
        (
            "name = \"a\"\non = \"warning\"\n".to_owned(),
            5,
            "behavior `a` has neither `command` nor `url`",
            "add `command = [\"…\"]`, or `url = \"http://…\"`",
        ),
        (
            format!("name = \"a\"\non = \"warning\"\ncommand = [\"x\"]\n{local}"),
            9,
            "`url` does not go with `command`",
            "take one of them out; two behaviors can have the same `on`",
        ),
        (
            "name = \"a\"\non = \"warning\"\ncommand = []\n".to_owned(),
            8,
            "`command` names no program",
            "write the program and its arguments, as in `command = [\"./notify.sh\"]`",
        ),
        (
            "name = \"a\"\non = \"warning\"\ncommand = [\"x\"]\n".to_owned(),
            8,
            "behavior `a` needs `process:spawn`, which `grant` in [agent.policy] does not have",
            "write `grant = [\"fs:read\", \"process:spawn\"]` into [agent.policy]",
        ),
        (
            "name = \"a\"\non = \"warning\"\nurl = \"https://Hooks.example.com./x\"\n".to_owned(),
            8,
            "behavior `a` needs `network:outbound:hooks.example.com`, which `grant` in [agent.policy] does not have",
            "write `grant = [\"fs:read\", \"network:outbound:hooks.example.com\"]` into [agent.policy]",
        ),
        (
            "name = \"a\"\non = \"warning\"\nurl = \"hook\"\n".to_owned(),
            8,
            "`url`: relative URL without a base",
            url,
        ),
        (
            "name = \"a\"\non = \"warning\"\nurl = \"ftp://127.0.0.1\"\n".to_owned(),
            8,
            "`url`: neither http nor https",
            url,
        ),
        (
            "name = \"a\"\non = \"warning\"\nurl = \"http://u:key@127.0.0.1\"\n".to_owned(),
            8,
            "`url`: a user or a password in an address",
            url,
        ),
        (
            "name = \"a\"\non = \"warning\"\ncommand = [\"x\"]\nsigning_key = \"env:K\"\n"
                .to_owned(),
            9,
            "`signing_key` does not go with `command`",
            "it is for a behavior with `url`; take it out",
        ),
        (
            format!(
                "name = \"a\"\non = \"warning\"\n{local}headers = {{ authorization = \"Bearer x\" }}\n"
            ),
            9,
            "`headers`: `authorization` holds a credential",
            reference,
        ),
        (
            format!("name = \"a\"\non = \"warning\"\n{local}headers = {{ Webhook-Id = \"x\" }}\n"),
            9,
            "`headers`: `Webhook-Id` is set by Backstop",
            "take it out",
        ),
        (
            format!("name = \"a\"\non = \"warning\"\n{local}headers = {{ \"a b\" = \"x\" }}\n"),
            9,
            "`headers`: `a b` is no name of a header",
            "write letters, digits and hyphens",
        ),
        (
            format!("name = \"a\"\non = \"warning\"\n{local}signing_key = \"whsec_abc\"\n"),
            9,
            "`signing_key` is no reference to a credential",
            reference,
        ),
        (
            format!("name = \"a\"\non = \"warning\"\n{local}timeout_ms = 0\n"),
            9,
            "`timeout_ms` must be at least 1",
            "write a number from 1 on, or take it out to keep the default",
        ),
        (
            format!("name = \"a\"\non = \"warning\"\n{local}from = \"strat\"\n"),
            9,
            "`from`: unknown variant `strat`",
            "did you mean `start`?",
        ),
        (
            format!("name = \"a\"\non = \"warning\"\n{local}timeout = 5\n"),
            9,
            "unknown field `timeout`",
            "did you mean `timeout_ms`?",
        ),
    ] {
        check(&agent_error(&format!("{BEFORE}[[behavior]]\n{text}")), line, what, hint);
    }
    let error = agent_error(&format!("{BEFORE}[behavior]\nname = \"a\"\n"));
    check(&error, 5, "`behavior`: invalid type: map, expected a list", "write `[[behavior]]`");
}

/// Spec: C5, X8
#[test]
fn every_mistake_of_behaviors_is_found() {
    let (_folder, path) = written(&format!(
        "{BEFORE}[[behavior]]\nname = \"a/b\"\non = [\"warning\", \"run.\"]\ncommand = [\"x\"]\n\
         [[behavior]]\nname = \"b\"\non = \"tool\"\nurl = \"https://example.com\"\nform = \"now\"\n\
         [[behavior]]\nname = \"b\"\nurl = \"x\"\n"
    ));
    let checked = AgentFile::check(&path).unwrap();
    let lines: Vec<usize> = checked.mistakes.iter().filter_map(|it| it.line()).collect();
    assert_eq!(lines, [6, 7, 8, 11, 12, 13, 14, 15, 16], "{:#?}", checked.mistakes);
    assert!(checked.file.is_some());
}
