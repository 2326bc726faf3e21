//! Errors of invalid patterns.

use backstop_event_log::{Pattern, Patterns};
use layer0::failure::{Effect, Failure, Retry};

#[track_caller]
fn check(rows: &[(&str, usize, &str, &str)]) {
    for (text, column, what, hint) in rows {
        let error = text.parse::<Pattern>().expect_err(text);
        let told = format!("invalid pattern at column {column}: {what}");
        assert_eq!(
            (error.to_string().as_str(), error.hint().unwrap_or_default()),
            (told.as_str(), *hint),
            "{text}"
        );
        assert_eq!(error.column(), *column, "{text}");
        assert_eq!(Failure::hint(&error).as_deref(), error.hint(), "{text}");
        let facts = error.facts();
        assert_eq!((facts.code, facts.retry), ("input.invalid", Retry::Never));
        assert_eq!(facts.effect, Effect::None);
    }
}

/// Spec: X1
#[test]
fn syntax_errors_name_the_column() {
    let every = "write `*.*` for every type of two segments";
    let quotes = "write a value with spaces or punctuation in double quotes";
    let operators = "`=`, `!=`, `<`, `<=`, `>` or `>=`";
    let expected = |what: &str, found: &str| format!("expected {what}, found {found}");
    let rows = [
        ("", 1, expected("an event type, such as `run.failed`", "the end"), ""),
        ("   ", 4, expected("an event type, such as `run.failed`", "the end"), ""),
        ("[a=b]", 1, expected("an event type, such as `run.failed`", "`[`"), ""),
        ("*", 2, expected("`.`", "the end"), every),
        ("**", 2, expected("`.`", "`*`"), every),
        ("run.", 5, expected("the second segment of a type, or `*`", "the end"), ""),
        (
            "run.fail*",
            9,
            expected("`[` or the end", "`*`"),
            "in a type, `*` stands for a whole segment, as in `tool.*`",
        ),
        ("a.b.c", 4, expected("`[` or the end", "`.c`"), "a type has at most two segments"),
        ("run.failed reason", 12, expected("the end", "`reason`"), ""),
        (
            "run.failed or tool.late",
            12,
            expected("the end", "`or`"),
            "give several patterns as a list of texts",
        ),
        ("run.failed[", 12, expected("a field, such as `reason`", "the end"), ""),
        ("run.failed[]", 12, expected("a field, such as `reason`", "`]`"), ""),
        ("run.failed[reason]", 18, expected(operators, "`]`"), ""),
        ("run.failed[reason~x]", 18, expected(operators, "`~x`"), ""),
        ("run.failed[reason!x]", 19, expected("`=` behind `!`", "`x`"), ""),
        ("run.failed[reason==x]", 19, expected("a value", "`=`"), "write one `=` to compare"),
        ("run.failed[reason=]", 19, expected("a value", "`]`"), "write `\"\"` for the empty text"),
        (
            "run.failed[message = null]",
            22,
            expected("a value", "`null`"),
            "write `message!=*` for a field that is null or missing",
        ),
        ("run.failed[reason=a", 20, expected("`,` or `]`", "the end"), ""),
        ("run.failed[message=not found]", 24, expected("`,` or `]`", "`found`"), quotes),
        ("run.failed[reason=a,]", 21, expected("a field, such as `reason`", "`]`"), ""),
        ("run.failed[reason=a]]", 21, expected("the end", "`]`"), ""),
        (
            "run.failed[message=\"a]",
            23,
            expected("`\"` at the end of a quoted text", "the end"),
            "",
        ),
        (
            "run.failed[message=\"\\x\"]",
            22,
            expected("`\"`, `\\`, `*`, `n`, `r`, `t` or `u` behind `\\`", "`x`"),
            "",
        ),
        (
            "run.failed[message=\"\\u{d800}\"]",
            23,
            expected("the number of a character, such as `{1f600}`", "`{d800}`"),
            "",
        ),
        (
            "run.failed[message=\"a\nb\"]",
            22,
            expected("no control character", "a control character"),
            "write `\\n`, `\\r`, `\\t`, or `\\u{…}` with its number",
        ),
        (
            "run.failed[data=x]",
            16,
            expected("`.` and a field of `data`", "`=`"),
            "name what it is to be held against",
        ),
        (
            "run.failed[run.id=x]",
            18,
            expected("an operator behind a field of the envelope", "`=`"),
            "write `data.run` for a field of this name in the payload",
        ),
    ];
    let rows: Vec<_> =
        rows.iter().map(|(text, column, what, hint)| (*text, *column, &**what, *hint)).collect();
    check(&rows);
}

/// Spec: X1
#[test]
fn values_fit_their_fields() {
    check(&[
        ("model.responded[usage.output_tokens>many]", 37, "expected a number, found `many`", ""),
        ("budget.exhausted[used=many]", 23, "expected a number, found `many`", ""),
        ("tool.late[execution=once]", 21, "expected a whole number, found `once`", ""),
        ("tool.late[execution=1.5]", 21, "expected a whole number, found `1.5`", ""),
        ("tool.responded[ok=yes]", 19, "expected `true` or `false`, found `yes`", ""),
        (
            "run.failed[at>yesterday]",
            15,
            "expected a time, such as `2026-01-01T00:00:00Z`, found `yesterday`",
            "",
        ),
    ]);
}

/// Spec: X1
#[test]
fn unknown_names_come_with_the_nearest() {
    check(&[
        ("run.faild", 1, "there is no event type `run.faild`", "did you mean `run.failed`?"),
        ("tol.*", 1, "there is no event type `tol.*`", "did you mean `tool.*`?"),
        ("*.faled", 1, "there is no event type `*.faled`", "did you mean `*.failed`?"),
        ("run", 1, "there is no event type `run`", "did you mean `run.*`?"),
        ("warning.*", 1, "there is no event type `warning.*`", "did you mean `warning`?"),
        (
            "xyz.qqq",
            1,
            "there is no event type `xyz.qqq`",
            "the types of events are in docs/events.md; one is `run.failed`",
        ),
        (
            "run.failed[ raeson=x]",
            13,
            "`run.failed` has no field `raeson`",
            "did you mean `reason`?",
        ),
        ("run.failed[sequ=1]", 12, "`run.failed` has no field `sequ`", "did you mean `seq`?"),
        (
            "tool.responded[error.raeson=x]",
            16,
            "`tool.responded` has no field `error.raeson`",
            "did you mean `error.reason`?",
        ),
        (
            "tool.*[xyz=x]",
            8,
            "`tool.*` has no field `xyz`",
            "known here: call_id, tool, arguments, execution, reason, message, delay_ms, ok, output, images, stderr, \
             done_before, duration_ms, error, verdict, by",
        ),
        (
            "run.failed[reason.code=x]",
            12,
            "`run.failed` has no field `reason.code`",
            "`reason` has no fields",
        ),
        (
            "signal.received[data.ticket=x]",
            17,
            "`signal.received` has no field `ticket`",
            "write `data.data.ticket` for a field of what it carries as `data`",
        ),
    ]);
}

/// Spec: X1
#[test]
fn records_of_subscriptions_are_not_delivered() {
    let hint =
        "of what is recorded about subscriptions, only `behavior.failed` can be subscribed to";
    for text in [
        "behavior.delivered",
        "behavior.completed",
        "subscription.opened",
        "subscription.*",
        "*.opened",
    ] {
        check(&[(text, 1, &format!("`{text}` is delivered to no subscription"), hint)]);
    }
}

/// Spec: X1
#[test]
fn patterns_that_cannot_match_are_refused() {
    #[track_caller]
    fn never(text: &str, column: usize, why: &str) {
        let error = text.parse::<Pattern>().expect_err(text);
        let told = format!("invalid pattern at column {column}: it can never match: {why}");
        assert_eq!(error.to_string(), told, "{text}");
    }
    let none = |field: &str, fits: &str| format!("no value of `{field}` fits `{fits}`");
    let reason = |fits: &str| none("reason", fits);
    never("run.failed[reason=a, reason=b]", 22, &reason("reason=a, reason=b"));
    never("run.failed[reason=a, seq>1, reason!=a]", 29, &reason("reason=a, reason!=a"));
    never("run.failed[reason=a*, reason!=a*]", 23, &reason("reason=a*, reason!=a*"));
    never("run.failed[reason=ab, reason=b*]", 23, &reason("reason=ab, reason=b*"));
    never("run.failed[reason=ab, reason!=a*]", 23, &reason("reason=ab, reason!=a*"));
    never("budget.exhausted[used>=5, used<=4]", 27, &none("used", "used>=5, used<=4"));
    never("run.failed[seq<1]", 12, &none("seq", "seq<1"));
    never("run.failed[seq=0]", 12, &none("seq", "seq=0"));
    never("run.failed[seq>5, seq<3]", 19, &none("seq", "seq>5, seq<3"));
    never("run.failed[seq>5, seq<6]", 19, &none("seq", "seq>5, seq<6"));
    never("run.failed[seq=5, seq!=5.0]", 19, &none("seq", "seq=5, seq!=5.0"));
    never("run.failed[run!=*]", 12, &none("run", "run!=*"));
    never("run.failed[actor=runtme]", 12, &none("actor", "actor=runtme"));
    never(
        "run.finished[usage.cost_usd>1.5, usage.cost_usd<=1.5]",
        34,
        &none("usage.cost_usd", "usage.cost_usd>1.5, usage.cost_usd<=1.5"),
    );
    never("tool.responded[ok=true, ok=false]", 25, &none("ok", "ok=true, ok=false"));
    never("tool.responded[error=*, error!=*]", 25, &none("error", "error=*, error!=*"));
    never(
        "run.waiting[approvals=a, approvals!=a]",
        26,
        &none("approvals", "approvals=a, approvals!=a"),
    );
    never(
        "run.failed[at>2026-01-02T00:00:00Z, at<2026-01-01T00:00:00Z]",
        37,
        &none("at", "at>2026-01-02T00:00:00Z, at<2026-01-01T00:00:00Z"),
    );
    never("run.failed[message>5]", 12, "`message` is a text, which `>` does not compare");
    never("tool.responded[ok<1]", 16, "`ok` is `true` or `false`, which `<` does not compare");
    never("tool.responded[error=x]", 16, "`error` is an object");
    never("run.started[labels=x]", 13, "`labels` is an object");
    never("*.failed[type=tool.*]", 10, "of `*.failed`, no event type fits `type=tool.*`");
    never(
        "tool.*[arguments.a=1, output.b=2]",
        23,
        "of `tool.*`, no event type fits `arguments.a=1, output.b=2`",
    );
    for possible in [
        "run.failed[reason=a*, reason=*b]",
        "run.failed[reason!=a, reason!=b]",
        "tool.responded[ok!=true, ok!=false]",
        "run.failed[caused_by!=*]",
        "run.waiting[approvals=a, approvals=b]",
        "tool.responded[output=1, output=2]",
        "tool.*[reason!=x, tool=y]",
        "run.finished[usage.cost_usd>1.5, usage.cost_usd<1.6]",
        "budget.exhausted[used>=5, used<=5]",
        "budget.exhausted[used=2*, limit=2.50]",
    ] {
        assert!(possible.parse::<Pattern>().is_ok(), "{possible}");
    }
}

/// Spec: X1
#[test]
fn length_and_conditions_are_limited() {
    let of = |chars: usize| format!("warning[message={}]", "x".repeat(chars - 17));
    assert!(format!("  {}  ", of(1024)).parse::<Pattern>().is_ok());
    let error = of(1025).parse::<Pattern>().unwrap_err();
    let told = "invalid pattern at column 1: expected at most 1024 characters, found 1025";
    assert_eq!(error.to_string(), told);

    let of = |many: usize| format!("warning[{}]", vec!["message!=x"; many].join(","));
    assert!(of(16).parse::<Pattern>().is_ok());
    let error = of(17).parse::<Pattern>().unwrap_err();
    let told = "invalid pattern at column 185: expected at most 16 conditions, found `message`";
    assert_eq!(error.to_string(), told);

    assert!(Patterns::of_texts(vec!["warning"; 16]).is_ok());
    let error = Patterns::of_texts(vec!["warning"; 17]).unwrap_err();
    let told = "invalid pattern at column 1: expected at most 16 patterns, found 17";
    assert_eq!(error.to_string(), told);
}
