//! The secrets of a process, in all forms that redaction promises to find.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// A secret with characters that JSON, URLs and shells write in another way. Its first eight characters are in no other text.
#[derive(Clone)]
pub(super) struct Canary {
    pub(super) name: &'static str,
    pub(super) text: String,
    pub(super) known: Known,
}

/// The moment from which a process holds a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Known {
    /// Once it has read the agent file.
    File,
    /// Once it has built the agent and its servers.
    Agent,
    /// Once a tool that needs it was run.
    Tool,
    /// Once it serves clients.
    Clients,
}

/// Length of the beginning by which a canary is known, in bytes.
const MARK_BYTES: usize = 12;

impl Canary {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, text: format!("{name}-canary+\"x\\y\"/=%Zm9v"), known: Known::File }
    }

    /// Returns a canary in Base64, as a signing key is.
    pub(super) fn encoded(name: &'static str) -> Self {
        let text = STANDARD.encode(format!("{name}-canary-of-32-bytes-at-least"));
        Self { name, text, known: Known::File }
    }

    pub(super) fn known(self, known: Known) -> Self {
        Self { known, ..self }
    }

    /// Returns the text in each form.
    pub(super) fn forms(&self) -> Vec<String> {
        let text = &*self.text;
        let mut forms =
            vec![text.to_owned(), json(text), json(&json(text)), json(&json(&json(text)))];
        forms.push(url::form_urlencoded::byte_serialize(text.as_bytes()).collect());
        forms.push(text.bytes().map(|byte| format!("%{byte:02x}")).collect());
        for before in ["", "a", "ab"] {
            let login = format!("{before}{text}:more");
            forms.extend([STANDARD.encode(&login), URL_SAFE.encode(&login)]);
        }
        forms.extend([hex(text), hex(text).to_uppercase()]);
        forms
    }

    /// Returns the forms of the beginning of the text, one of which is in each of [`Canary::forms`].
    pub(super) fn marks(&self) -> Vec<String> {
        let mark = &self.text[..MARK_BYTES];
        let mut marks = vec![mark.to_owned(), hex(mark), hex(mark).to_uppercase()];
        marks.push(mark.bytes().map(|byte| format!("%{byte:02x}")).collect());
        for (before, changed) in [("", 0), ("a", 2), ("ab", 3)] {
            let login = format!("{before}{mark}");
            let whole = login.len() / 3 * 4;
            marks.extend(
                [STANDARD, URL_SAFE].map(|form| form.encode(&login)[changed..whole].to_owned()),
            );
        }
        marks
    }
}

/// Returns a text as within the quotes of JSON.
fn json(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    quoted[1..quoted.len() - 1].to_owned()
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// A mark that would not be found proves nothing.
#[test]
fn marks_are_in_every_form() {
    for canary in [Canary::new("a-name-of-one"), Canary::encoded("a-name-of-one")] {
        let marks = canary.marks();
        for form in canary.forms() {
            assert!(marks.iter().any(|mark| form.contains(mark)), "{form}");
        }
    }
}
