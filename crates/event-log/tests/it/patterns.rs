//! Parsing and printing of patterns.

use backstop_event_log::{Pattern, Patterns, Payload, Record};
use layer0::Timestamp;
use layer0::event::Actor;
use proptest::prelude::*;

/// Quotes a text; its asterisks are wildcards if `is_wild`.
fn quoted(text: &str, is_wild: bool) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        '*' if !is_wild => "\\*".to_owned(),
        c if c.is_control() => format!("\\u{{{:x}}}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

fn condition() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        Just("message".to_owned()),
        Just("data.reason".to_owned()),
        Just("run".to_owned()),
        Just("usage.total_tokens".to_owned()),
        Just("seq".to_owned()),
        Just("at".to_owned()),
        ".{0,4}".prop_map(|name| format!("data.output.{}", quoted(&name, true))),
    ];
    let operator = prop_oneof![
        3 => Just("="),
        3 => Just("!="),
        1 => Just("<"),
        1 => Just("<="),
        1 => Just(">"),
        1 => Just(">="),
    ];
    let value = prop_oneof![
        (any::<String>(), any::<bool>()).prop_map(|(text, is_wild)| quoted(&text, is_wild)),
        "[a-z*.\"\\\\]{1,8}",
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| number.to_string()),
        Just("2026-01-01T00:00:00Z".to_owned()),
    ];
    (field, " ?", operator, " ?", value).prop_map(|(field, before, operator, behind, value)| {
        format!("{field}{before}{operator}{behind}{value}")
    })
}

fn text() -> impl Strategy<Value = String> {
    let event_type = prop_oneof![Just("run.failed"), Just("*.*"), Just("tool.*"), Just("*.failed")];
    (event_type, prop::collection::vec(condition(), 0..4)).prop_map(|(event_type, conditions)| {
        match conditions.is_empty() {
            true => event_type.to_owned(),
            false => format!("{event_type} [{} ]", conditions.join(" , ")),
        }
    })
}

proptest! {
    /// Spec: X1
    #[test]
    fn what_is_written_is_read_as_the_same(texts in prop::collection::vec(text(), 1..4)) {
        let read = texts.iter().filter_map(|text| text.parse::<Pattern>().ok());
        let read: Vec<Pattern> = read.collect();
        for pattern in &read {
            let written = pattern.to_string();
            let again = written.parse::<Pattern>();
            prop_assert_eq!(again.as_ref(), Ok(pattern), "{}", written);
            prop_assert_eq!(again.map(|again| again.to_string()), Ok(written));
        }
        let written: Vec<String> = read.iter().map(ToString::to_string).collect();
        if let Ok(patterns) = Patterns::of_texts(&written) {
            prop_assert_eq!(patterns.to_string().parse(), Ok(patterns));
        }
    }

    /// Spec: X1
    #[test]
    fn no_text_panics(text in prop_oneof![any::<String>(), text(), "[a-z*.\\[\\]=!<>,\" \\\\]{0,40}"]) {
        match text.parse::<Patterns>() {
            Ok(patterns) => {
                let payload = Payload::Plain(format!("{{\"output\":{{\"a\":{}}}}}", 1));
                let at = Timestamp::default();
                let record = Record::new(1, at, "tool.responded", Actor::Tool, payload);
                let _either = patterns.matches(&"run_1".into(), &record);
            }
            Err(error) => {
                let (message, chars) = (error.to_string(), text.chars().count());
                prop_assert!(message.starts_with("invalid pattern"), "{}", message);
                prop_assert!(!message.chars().any(char::is_control), "{:?}", message);
                prop_assert!(message.chars().count() < 400, "{}", message);
                prop_assert!((1..=chars + 1).contains(&error.column()), "{}", message);
            }
        }
    }
}

/// Spec: X1
#[test]
fn patterns_have_one_canonical_text() {
    for (text, canonical) in [
        ("run.failed", "run.failed"),
        (" run.failed [ reason = \"provider.*\" ] ", "run.failed[reason=provider.*]"),
        ("run.failed[data.reason=a**b,seq>=5]", "run.failed[reason=a*b, seq>=5]"),
        ("run.forked[data.run=x]", "run.forked[data.run=x]"),
        (r#"warning[message="a b"]"#, r#"warning[message="a b"]"#),
        (r#"warning[message="null"]"#, r#"warning[message="null"]"#),
        (r#"warning[message=""]"#, r#"warning[message=""]"#),
        (r#"warning[message="\*\u{7}\n"]"#, r#"warning[message="\*\u{7}\n"]"#),
        (r#"run.started[labels."a b"=x]"#, r#"run.started[labels."a b"=x]"#),
        (r#"run.started["labels"."a"=x]"#, "run.started[labels.a=x]"),
    ] {
        assert_eq!(text.parse::<Pattern>().unwrap().to_string(), canonical);
    }
    let several = "run.failed  or warning[message!=x]or *.denied";
    let patterns: Patterns = several.parse().unwrap();
    assert_eq!(patterns.to_string(), "run.failed or warning[message!=x] or *.denied");
    assert_eq!(patterns.event_types(), ["run.failed", "approval.denied", "warning"]);
    let error = "run.failed, warning".parse::<Patterns>().unwrap_err();
    let told = "invalid pattern at column 11: expected `or` or the end, found `,`";
    assert_eq!(error.to_string(), told);
}

#[test]
fn patterns_are_text_in_json() {
    let patterns: Patterns = serde_json::from_str(r#""run.failed or warning""#).unwrap();
    assert_eq!(serde_json::to_string(&patterns).unwrap(), r#""run.failed or warning""#);
    let error = serde_json::from_str::<Pattern>(r#""run.faild""#).unwrap_err();
    assert!(error.to_string().starts_with("invalid pattern at column 1: "), "{error}");
}
