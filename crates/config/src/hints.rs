//! Hints for mistakes of a file.

use std::ops::Range;

/// Smallest similarity of a name that a hint suggests.
const MIN_SIMILARITY: f64 = 0.8;

/// Keys of the format, by the table they belong to.
const PLACES: [(&str, &[&str]); 9] = [
    ("[agent]", &["input", "instructions", "instructions_file"]),
    (
        "[agent.budget]",
        &[
            "max_cost_usd",
            "max_events",
            "max_input_tokens",
            "max_model_calls",
            "max_tool_calls",
            "max_total_tokens",
            "max_wall_ms",
        ],
    ),
    (
        "[agent.limits]",
        &[
            "exploratory_tools",
            "max_concurrent_tools",
            "max_iterations",
            "max_parallel_tools",
            "max_result_bytes",
            "tool_timeout_ms",
        ],
    ),
    ("[agent.policy]", &["grant"]),
    ("[agent.price]", &["input_per_mtok", "output_per_mtok"]),
    ("[agent.retry]", &["attempts", "base_ms", "cap_ms", "deadline_ms", "max_retry_after_ms"]),
    (
        "[model]",
        &[
            "api_key_env",
            "base_url",
            "cache",
            "extra_body",
            "headers",
            "max_output_tokens",
            "model",
            "provider",
            "reasoning_effort",
            "script",
            "seed",
            "stop",
            "stream",
            "temperature",
            "timeouts",
            "tool_choice",
            "top_p",
        ],
    ),
    ("[model.timeouts]", &["attempt_ms", "connect_ms", "first_byte_ms", "idle_ms"]),
    ("[store]", &["durability", "error_retention_days", "run_retention_days", "url"]),
];

/// Common names for a key whose own name is not similar: the written name, the key, and another key that the same table
/// must know.
const MEANT: [(&str, &str, &str); 6] = [
    ("max_tokens", "max_output_tokens", "provider"),
    ("name", "model", "provider"),
    ("prompt", "instructions", "instructions_file"),
    ("system", "instructions", "instructions_file"),
    ("system_prompt", "instructions", "instructions_file"),
    ("url", "base_url", "provider"),
];

/// Returns a hint for an unknown name: the similar name, its table, or all known names.
pub(crate) fn of_unknown(
    text: &str,
    name: &str,
    known: &[&str],
    span: Option<&Range<usize>>,
) -> Option<String> {
    let is_meant = |(written, meant, beside): &(&str, &str, &str)| {
        *written == name && known.contains(meant) && known.contains(beside)
    };
    if let Some((_, meant, _)) = MEANT.iter().find(|row| is_meant(row)) {
        return Some(format!("did you mean `{meant}`?"));
    }
    let is_agent = text.lines().any(|line| line.trim_start().starts_with("[model]"));
    let place = PLACES.into_iter().find(|(_, keys)| keys.contains(&name));
    // A table of a list, such as `[[behavior]]`, has its own keys: no other table is suggested for them.
    let place = place.filter(|_| !is_in_list(text, span) || is_in_operator(text, span));
    if let Some((table, _)) = place.filter(|(table, _)| is_agent || table.starts_with("[agent")) {
        let table = match is_in_operator(text, span) {
            true => table.replacen('[', "[operator.", 1),
            false => table.to_owned(),
        };
        return Some(format!("it belongs into `{table}`"));
    }
    nearest(name, known)
}

/// Returns a hint with the nearest known name, or with all of them.
pub(crate) fn nearest(name: &str, known: &[&str]) -> Option<String> {
    let small = name.to_ascii_lowercase();
    let likeness = |known: &&&str| strsim::jaro_winkler(&small, known);
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    let all = known.join(", ");
    Some(match likeness(&best) >= MIN_SIMILARITY {
        true => format!("did you mean `{best}`?"),
        // Most providers implement the interface of OpenAI.
        false if known.contains(&"openai-responses") => format!(
            "write `openai`, and `base_url = \"https://…\"` beside it, for a provider that speaks its \
             interface; known here: {all}"
        ),
        false => format!("known here: {all}"),
    })
}

/// Returns whether a place is in a table of a list.
fn is_in_list(text: &str, span: Option<&Range<usize>>) -> bool {
    let before = span.and_then(|span| text.get(..span.start)).unwrap_or_default();
    let header = before.lines().rev().map(str::trim_start).find(|line| line.starts_with('['));
    header.is_some_and(|header| header.starts_with("[["))
}

/// Returns whether a place is in a table of an operator of a scenario.
fn is_in_operator(text: &str, span: Option<&Range<usize>>) -> bool {
    let before = span.and_then(|span| text.get(..span.start)).unwrap_or_default();
    let mut headers = before.lines().rev().map(str::trim_start).filter(|it| it.starts_with('['));
    let name = headers.next().map(|header| header.trim_start_matches(['[', ' ']));
    name.is_some_and(|name| name.starts_with("operator"))
}

/// Returns a hint for the error of a reader about a value or a table.
pub(crate) fn of_value(
    text: &str,
    what: &str,
    key: Option<&str>,
    span: Option<&Range<usize>>,
) -> Option<String> {
    if let Some(field) = what.strip_prefix("missing field `") {
        let field = field.split('`').next()?;
        return Some(of_missing(field, header_at(text, span)));
    }
    if what.starts_with("string values ") {
        return Some(format!("write `{} = \"…\"`", key?));
    }
    if what.starts_with("must have `type = \"object\"`") {
        return Some(format!("write `{} = {{ type = \"object\", properties = {{ … }} }}`", key?));
    }
    if let Some(least) = what.strip_prefix("must be at least 1") {
        let off =
            if least.is_empty() { String::new() } else { format!(", or `{} = \"off\"`", key?) };
        return Some(format!("write a number from 1 on{off}, or take it out to keep the default"));
    }
    if what.starts_with("must be an amount above 0") {
        return Some(format!("write a number above 0, such as `{} = 10.0`", key?));
    }
    if what.starts_with("must be from 0 to ") {
        return Some(
            "write a number in these bounds, or take it out to keep the provider's own".to_owned(),
        );
    }
    let (given, expected) = what.split_once(", expected ")?;
    let given = given.rsplit_once(": ").map_or(given, |(_, given)| given);
    match expected {
        "a boolean" => Some("write `true` or `false`, without quotes".to_owned()),
        "a list" if given == "map" => Some(format!("write `[[{}]]`", key?)),
        "a list" if given.starts_with("string") => Some(format!("write `{} = [\"…\"]`", key?)),
        number if number.starts_with("a number") || number.starts_with("a whole number") => {
            of_number(given, key?, number.ends_with("\"off\""))
        }
        amount if amount.starts_with("an amount") => of_number(given, key?, true),
        "a string" => Some("write it in quotes".to_owned()),
        _ => None,
    }
}

/// Returns a hint for a number that was written as a text.
fn of_number(given: &str, key: &str, may_be_off: bool) -> Option<String> {
    let text = given.strip_prefix("string ")?.trim_matches('"');
    if text.trim().parse::<f64>().is_ok() {
        return Some("write it without quotes".to_owned());
    }
    let off = if may_be_off { format!(", or `{key} = \"off\"`") } else { String::new() };
    Some(format!("write a number, such as `{key} = 10`{off}"))
}

fn of_missing(field: &str, header: Option<&str>) -> String {
    match (field, header) {
        ("kind", Some("[[tools]]")) => {
            "add `kind = \"command\"` for a program, or `kind = \"builtin\"` for one of ours"
                .to_owned()
        }
        ("model", _) => "add a `[model]` table with `provider` and `model`".to_owned(),
        (field, Some(header)) => format!("add `{field} = …` to `{header}`"),
        (field, None) => format!("add `{field} = …`"),
    }
}

/// Returns the header of the table at a place; `None` for the file itself.
fn header_at<'t>(text: &'t str, span: Option<&Range<usize>>) -> Option<&'t str> {
    let span = span.filter(|span| span.start > 0 || span.end < text.len())?;
    let before = text.get(..span.start)?;
    let line = text[before.rfind('\n').map_or(0, |at| at + 1)..].lines().next()?.trim();
    let end = line.starts_with('[').then(|| line.rfind(']'))??;
    line.get(..=end)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::AgentFile;

    /// Spec: C5
    #[test]
    fn every_key_belongs_where_its_hint_says() {
        for (table, keys) in PLACES {
            for key in keys {
                let model = "[model]\nprovider = \"script\"\n";
                let text = match table {
                    "[model]" if *key == "provider" => model.replace("\"script\"", "[[]]"),
                    "[model]" => format!("{model}{key} = [[]]\n"),
                    table => format!("{model}{table}\n{key} = [[]]\n"),
                };
                let error = AgentFile::of_text(Path::new("x.toml"), &text).unwrap_err();
                assert!(!error.what().contains("unknown field"), "{table} {key}: {error}");
                let text = format!("{model}[redact]\n{key} = 1\n");
                let error = AgentFile::of_text(Path::new("x.toml"), &text).unwrap_err();
                assert_eq!(error.hint(), Some(format!("it belongs into `{table}`").as_str()));
            }
        }
    }

    /// Spec: C5. The keys of a list's tables are its own.
    #[test]
    fn tables_of_lists_are_sent_nowhere_else() {
        for (table, key) in [
            (
                "[[behavior]]\nname = \"b\"\non = \"run.failed\"\nurl = \"http://127.0.0.1\"",
                "header",
            ),
            (
                "[[behavior]]\nname = \"b\"\non = \"run.failed\"\nurl = \"http://127.0.0.1\"",
                "stream",
            ),
            ("[[tools]]\nkind = \"command\"\nname = \"t\"", "headers"),
            ("[[limit]]\nscope = \"agent\"", "max_model_calls"),
            ("[[mcp]]\nname = \"m\"", "max_result_bytes"),
        ] {
            let text = format!("[model]\nprovider = \"script\"\n{table}\n{key} = 1\n");
            let error = AgentFile::of_text(Path::new("x.toml"), &text).unwrap_err();
            assert!(error.what().starts_with("unknown field"), "{error}");
            assert!(!error.hint().unwrap().contains("belongs into"), "{key}: {:?}", error.hint());
        }
    }
}
