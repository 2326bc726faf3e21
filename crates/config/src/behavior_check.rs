//! Checks of `[[behavior]]`.

use std::ops::Range;
use std::path::Path;

use backstop_event_log::{Pattern, Patterns};
use backstop_process::{Credential, is_loopback};
use backstop_redact::is_secret_name;
use backstop_tool::Grants;
use layer0::name::check_behavior_name;
use toml::de::{DeTable, DeValue};
use url::Url;

use crate::ConfigError;
use crate::behavior_table::{BehaviorAction, BehaviorTable, WebhookTable, WrittenBehavior};
use crate::line::line_number;

/// Name of the list of behaviours in a file.
const TABLES: &str = "behavior";

/// Checks the behaviours of a file against its grants. With the text of the file, errors name lines.
pub(crate) fn behaviors(
    path: &Path,
    text: Option<&str>,
    written: &[WrittenBehavior],
    grants: &[String],
) -> Result<Vec<BehaviorTable>, ConfigError> {
    let tables = written.iter().enumerate().map(|(index, behavior)| {
        check_name(behavior, &written[..index])?;
        let on = patterns(&behavior.on, BehaviorPosition::key(index, "on"))?;
        let action = action(behavior, index, grants)?;
        Ok(BehaviorTable::new(behavior, on, action))
    });
    tables.collect::<Result<_, BehaviorMistake>>().map_err(|mistake| mistake.in_file(path, text))
}

/// A mistake, with its place in the list of behaviours.
pub(crate) struct BehaviorMistake {
    place: BehaviorPosition,
    what: String,
    hint: String,
    /// Index of the behaviour with the same name, if that is the mistake.
    other: Option<usize>,
}

/// A table, and optionally a key in it and an element of the key's list.
#[derive(Clone, Copy)]
struct BehaviorPosition {
    table: usize,
    key: Option<&'static str>,
    element: Option<usize>,
}

fn check_name(
    behavior: &WrittenBehavior,
    earlier: &[WrittenBehavior],
) -> Result<(), BehaviorMistake> {
    let place = BehaviorPosition::key(earlier.len(), "name");
    check_behavior_name(&behavior.name).map_err(|error| {
        let hint = "write 1 to 64 ASCII letters, digits, spaces, `_`, `-` and `.`: \
            its record is `sub_NAME`";
        BehaviorMistake::new(place, format!("behavior: {error}"), hint)
    })?;
    match earlier.iter().position(|other| other.name == behavior.name) {
        None => Ok(()),
        Some(other) => {
            let what = format!("there is already a behavior named `{}`", behavior.name);
            let mistake = BehaviorMistake::new(place, what, "give it another name");
            Err(BehaviorMistake { other: Some(other), ..mistake })
        }
    }
}

/// Reads the patterns one by one, so that an error names the line of its pattern.
fn patterns(on: &[String], place: BehaviorPosition) -> Result<Patterns, BehaviorMistake> {
    for (index, text) in on.iter().enumerate() {
        if let Err(error) = text.parse::<Pattern>() {
            let place = BehaviorPosition { element: Some(index), ..place };
            let hint = error.hint().unwrap_or("see \"Behaviours\" in docs/agent-files.md");
            return Err(BehaviorMistake::new(place, format!("`on`: {error}"), hint));
        }
    }
    Patterns::of_texts(on).map_err(|error| {
        let hint = "write `on = \"run.failed\"`, or a list of up to 16 patterns";
        BehaviorMistake::new(place, format!("`on`: {error}"), hint)
    })
}

fn action(
    behavior: &WrittenBehavior,
    table: usize,
    grants: &[String],
) -> Result<BehaviorAction, BehaviorMistake> {
    let (action, place, needs) = match (&behavior.command, &behavior.url) {
        (Some(command), None) => {
            check_no_webhook(behavior, table)?;
            let place = BehaviorPosition::key(table, "command");
            (program(command, place)?, place, Some("process:spawn".to_owned()))
        }
        (None, Some(url)) => {
            let place = BehaviorPosition::key(table, "url");
            let hook = webhook(behavior, address(url, place)?, table)?;
            let needs = outbound(&hook.url);
            (BehaviorAction::Url(hook), place, needs)
        }
        (Some(_), Some(_)) => {
            let hint = "take one of them out; two behaviors can have the same `on`";
            let place = BehaviorPosition::key(table, "url");
            return Err(BehaviorMistake::new(place, "`url` does not go with `command`", hint));
        }
        (None, None) => {
            let what = format!("behavior `{}` has neither `command` nor `url`", behavior.name);
            let hint = "add `command = [\"…\"]`, or `url = \"http://…\"`";
            return Err(BehaviorMistake::new(BehaviorPosition::table(table), what, hint));
        }
    };
    match needs.filter(|needs| !allow(grants, needs)) {
        None => Ok(action),
        Some(needs) => {
            let what = format!(
                "behavior `{}` needs `{needs}`, which `grant` in [agent.policy] does not have",
                behavior.name
            );
            let grants = grants.iter().chain([&needs]).map(|grant| format!("\"{grant}\""));
            let grants: Vec<String> = grants.collect();
            let hint = format!("write `grant = [{}]` into [agent.policy]", grants.join(", "));
            Err(BehaviorMistake::new(place, what, hint))
        }
    }
}

/// Refuses keys of a webhook in a behaviour with `command`.
fn check_no_webhook(behavior: &WrittenBehavior, table: usize) -> Result<(), BehaviorMistake> {
    let keys =
        [("headers", behavior.headers.is_some()), ("signing_key", behavior.signing_key.is_some())];
    match keys.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((key, _)) => {
            let what = format!("`{key}` does not go with `command`");
            Err(BehaviorMistake::new(
                BehaviorPosition::key(table, key),
                what,
                "it is for a behavior with `url`; take it out",
            ))
        }
    }
}

/// Headers that the runtime sets itself, in addition to those that begin with `webhook-`.
const OWN_HEADERS: [&str; 4] = ["content-length", "content-type", "host", "idempotency-key"];

fn webhook(
    behavior: &WrittenBehavior,
    url: Url,
    table: usize,
) -> Result<WebhookTable, BehaviorMistake> {
    let headers = behavior.headers.clone().unwrap_or_default();
    let place = BehaviorPosition::key(table, "headers");
    for (name, value) in &headers {
        let lower = name.to_ascii_lowercase();
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(is_token) {
            let what = format!("`headers`: `{}` is no name of a header", name.escape_debug());
            return Err(BehaviorMistake::new(place, what, "write letters, digits and hyphens"));
        }
        if OWN_HEADERS.contains(&&*lower) || lower.starts_with("webhook-") {
            let what = format!("`headers`: `{name}` is set by Backstop");
            return Err(BehaviorMistake::new(place, what, "take it out"));
        }
        if !value.is_credential() && is_secret_name(name) {
            let what = format!("`headers`: `{name}` holds a credential");
            return Err(BehaviorMistake::new(place, what, REFERENCE));
        }
    }
    let signing_key = behavior.signing_key.as_deref().map(Credential::parse).transpose();
    let signing_key = signing_key.map_err(|_| {
        let what = "`signing_key` is no reference to a credential";
        BehaviorMistake::new(BehaviorPosition::key(table, "signing_key"), what, REFERENCE)
    })?;
    Ok(WebhookTable { url, headers, signing_key })
}

/// Hint with the forms of a reference to a credential.
const REFERENCE: &str = "write where it is kept: `env:NAME`, `file:PATH` or `command:…`";

fn program(command: &[String], place: BehaviorPosition) -> Result<BehaviorAction, BehaviorMistake> {
    match command.first().is_some_and(|program| !program.trim().is_empty()) {
        true => Ok(BehaviorAction::Command(command.to_vec())),
        false => {
            let hint = "write the program and its arguments, as in `command = [\"./notify.sh\"]`";
            Err(BehaviorMistake::new(place, "`command` names no program", hint))
        }
    }
}

fn address(text: &str, place: BehaviorPosition) -> Result<Url, BehaviorMistake> {
    let hint = "write `url = \"http://127.0.0.1:9000/hook\"`";
    let refused = |what: &str| BehaviorMistake::new(place, format!("`url`: {what}"), hint);
    let url = Url::parse(text).map_err(|error| refused(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refused("neither http nor https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        // The user or password may be a key, so the message does not repeat it.
        return Err(refused("a user or a password in an address"));
    }
    Ok(url)
}

/// Returns the grant that an address needs; a loopback address needs none.
fn outbound(url: &Url) -> Option<String> {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_matches(['[', ']']).trim_end_matches('.');
    (!is_loopback(host)).then(|| format!("network:outbound:{host}"))
}

/// Returns whether the grants allow a capability. Invalid grants were refused before.
fn allow(grants: &[String], needs: &str) -> bool {
    Grants::parse(grants).is_ok_and(|grants| grants.allow(needs))
}

impl BehaviorPosition {
    const fn table(table: usize) -> Self {
        Self { table, key: None, element: None }
    }

    const fn key(table: usize, key: &'static str) -> Self {
        Self { table, key: Some(key), element: None }
    }

    /// Returns the place in a text; for an absent key, the place of its table.
    fn span(self, text: &str) -> Option<Range<usize>> {
        let file = DeTable::parse(text).ok()?;
        let tables = file.get_ref().get(TABLES)?.get_ref().as_array()?;
        let table = tables.get(self.table)?;
        let value = self.key.and_then(|key| table.get_ref().as_table()?.get(key));
        let element = self.element.and_then(|element| match value?.get_ref() {
            DeValue::Array(elements) => elements.get(element),
            _ => None,
        });
        Some(element.or(value).unwrap_or(table).span())
    }
}

impl BehaviorMistake {
    fn new(place: BehaviorPosition, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { place, what: what.into(), hint: hint.into(), other: None }
    }

    /// Converts the mistake to an error that names the file, and the line if the text is known.
    pub(crate) fn in_file(self, path: &Path, text: Option<&str>) -> ConfigError {
        let span = |place: BehaviorPosition| text.and_then(|text| Some((text, place.span(text)?)));
        let other = self.other.and_then(|other| {
            let (text, span) = span(BehaviorPosition::key(other, "name"))?;
            Some(format!(", in line {}", line_number(text, &span)))
        });
        let error = ConfigError::new(path, self.what + &other.unwrap_or_default());
        let error = error.with_hint(self.hint);
        match span(self.place) {
            Some((text, span)) => error.in_text(text, span),
            None => error,
        }
    }
}
