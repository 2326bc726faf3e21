//! Prompts for the person at the terminal.
//!
//! Only text that was typed after the prompt was drawn is an answer: earlier text is discarded right before. A prompt
//! is withdrawn when its [`PendingAnswer`] is dropped.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use layer0::JsonText;
use tokio::sync::oneshot;

use super::escape;
use super::form::DataForm;
use super::screen::{SCREEN, ScreenJob};
use super::terminal::{Terminal, read_line};

/// A question to a person.
pub(crate) struct Prompt {
    /// Text above the prompt; already escaped.
    shown: String,
    kind: PromptKind,
    /// Data to give with a yes.
    form: Option<DataForm>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PromptKind {
    /// Whether to answer the question of a running call.
    Answer,
    /// Whether to approve a call, as the command line asks for.
    Confirm,
    /// Whether a tool may run.
    Decide,
    /// Any question with the answers yes and no.
    YesOrNo,
}

/// The answer of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PromptAnswer {
    /// Yes, with the requested data.
    Given(JsonText),
    Later,
    /// No, with the reason.
    No(String),
    Yes,
}

/// The pending answer to a prompt; `None` if there is no answer.
///
/// # Cancel safety
///
/// Dropping it withdraws the prompt.
#[derive(Default)]
pub(crate) struct PendingAnswer {
    /// The pipe gets no data; the other end sees when it is closed.
    asked: Option<(oneshot::Receiver<PromptAnswer>, io::PipeWriter)>,
}

impl Prompt {
    /// Returns the prompt whether a call may run; [`super::call`] formats the call.
    pub(crate) fn to_decide(call: &str, limits: Option<&str>) -> Self {
        let limits = limits.map(|limits| format!("  ({})\n", escape::line(limits)));
        let limits = limits.unwrap_or_default();
        Self::new(format!("\nneeds approval: {call}\n{limits}"), PromptKind::Decide)
    }

    /// Returns the prompt whether to approve a call; [`super::call`] formats the call.
    pub(crate) fn to_confirm(call: &str) -> Self {
        Self::new(format!("{call}\n"), PromptKind::Confirm)
    }

    /// Returns a prompt for yes or no.
    pub(crate) fn yes_or_no(text: &str) -> Self {
        Self::new(format!("{}\n", escape::line(text)), PromptKind::YesOrNo)
    }

    /// Returns the prompt for the question of a running call.
    pub(crate) fn to_answer(tool: &str, message: &str) -> Self {
        let (tool, message) = (escape::line(tool), escape::text(message));
        Self::new(format!("\n{tool} asks: {message}\n"), PromptKind::Answer)
    }

    /// Adds a form for data, which is filled in unless the answer is no.
    pub(crate) fn with_form(mut self, form: Option<DataForm>) -> Self {
        self.form = form;
        self
    }

    const fn new(shown: String, kind: PromptKind) -> Self {
        Self { shown, kind, form: None }
    }

    /// Shows the prompt and returns its pending answer. One prompt is on the screen at a time.
    pub(crate) fn ask(self) -> PendingAnswer {
        let Ok((withdrawn, asking)) = io::pipe() else { return PendingAnswer::default() };
        let (answer, answered) = oneshot::channel();
        SCREEN.push(ScreenJob::Alone(Box::new(move || {
            converse_on_terminal(&self, answer, &withdrawn);
        })));
        PendingAnswer { asked: Some((answered, asking)) }
    }
}

impl Future for PendingAnswer {
    type Output = Option<PromptAnswer>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.asked {
            Some((answered, _)) => Pin::new(answered).poll(context).map(Result::ok),
            None => Poll::Ready(None),
        }
    }
}

/// Asks on this thread until there is an answer or the prompt is withdrawn.
fn converse_on_terminal(
    prompt: &Prompt,
    answer: oneshot::Sender<PromptAnswer>,
    withdrawn: &io::PipeReader,
) {
    if answer.is_closed() {
        return;
    }
    #[cfg(unix)]
    if let Ok(Some(said)) = converse(prompt, &mut super::tty::Tty::new(withdrawn)) {
        // If the prompt was withdrawn meanwhile, nothing receives the answer.
        let _ = answer.send(said);
    }
    #[cfg(not(unix))]
    let _ = (prompt, withdrawn);
}

#[cfg_attr(not(unix), expect(dead_code, reason = "there is no terminal to ask at"))]
fn converse(prompt: &Prompt, terminal: &mut impl Terminal) -> io::Result<Option<PromptAnswer>> {
    let asks = match prompt.kind {
        PromptKind::Answer => "answer it? [y]es, [n]o: ",
        PromptKind::Confirm => "approve it? [y]es, [n]o: ",
        PromptKind::Decide => "run it? [y]es, [n]o, [l]ater: ",
        PromptKind::YesOrNo => "[y]es, [n]o: ",
    };
    terminal.write(&prompt.shown)?;
    if let Some(form) = &prompt.form {
        terminal.write(&form.describe())?;
    }
    loop {
        terminal.forget()?;
        terminal.write(asks)?;
        let Some(line) = read_line(terminal)? else { return Ok(None) };
        match (line.to_lowercase().as_str(), prompt.kind) {
            ("y" | "yes", _) => {
                return Ok(match &prompt.form {
                    Some(form) => form.ask(terminal)?.map(PromptAnswer::Given),
                    None => Some(PromptAnswer::Yes),
                });
            }
            ("n" | "no", PromptKind::Answer | PromptKind::Confirm | PromptKind::YesOrNo) => {
                return Ok(Some(PromptAnswer::No(String::new())));
            }
            ("n" | "no", PromptKind::Decide) => {
                terminal.write("why not? the model reads it (empty for no reason): ")?;
                // The call is denied already, with or without a reason.
                return Ok(Some(PromptAnswer::No(read_line(terminal)?.unwrap_or_default())));
            }
            ("l" | "later", PromptKind::Decide) => return Ok(Some(PromptAnswer::Later)),
            (_, PromptKind::Answer | PromptKind::Confirm | PromptKind::YesOrNo) => {
                terminal.write("please answer y or n\n")?;
            }
            (_, PromptKind::Decide) => terminal.write("please answer y, n or l\n")?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::terminal::Typed;

    /// Typed text for each prompt; the next prompt discards the rest of it.
    struct Script<'a> {
        typed: Vec<&'a str>,
        lines: Vec<&'a str>,
        screen: String,
    }

    impl Terminal for Script<'_> {
        fn forget(&mut self) -> io::Result<()> {
            let typed = if self.typed.is_empty() { "" } else { self.typed.remove(0) };
            self.lines = typed.lines().collect();
            Ok(())
        }

        fn read(&mut self) -> io::Result<Typed> {
            Ok(match self.lines.is_empty() {
                true => Typed::End,
                false if self.lines[0] == "withdrawn" => Typed::Withdrawn,
                false => Typed::Line(self.lines.remove(0).to_owned()),
            })
        }

        fn write(&mut self, text: &str) -> io::Result<()> {
            self.screen.push_str(text);
            Ok(())
        }
    }

    #[track_caller]
    fn check(kind: PromptKind, typed: &[&str], expected: Option<PromptAnswer>) -> String {
        check_form(kind, None, typed, expected)
    }

    #[track_caller]
    fn check_form(
        kind: PromptKind,
        form: Option<DataForm>,
        typed: &[&str],
        expected: Option<PromptAnswer>,
    ) -> String {
        let prompt = Prompt::new("refund {}\n".to_owned(), kind).with_form(form);
        let mut script = Script { typed: typed.to_vec(), lines: vec!["y"], screen: String::new() };
        assert_eq!(converse(&prompt, &mut script).unwrap(), expected);
        script.screen
    }

    /// Spec: A1, A2
    #[test]
    fn only_a_clear_answer_decides() {
        let no = |why: &str| Some(PromptAnswer::No(why.to_owned()));
        check(PromptKind::Decide, &["y"], Some(PromptAnswer::Yes));
        check(PromptKind::Decide, &["No\n too late "], no("too late"));
        check(PromptKind::Decide, &["n\n\n"], no(""));
        check(PromptKind::Decide, &["l"], Some(PromptAnswer::Later));
        let screen = check(PromptKind::Decide, &["sure", "\n", "YES"], Some(PromptAnswer::Yes));
        assert_eq!(screen.matches("please answer").count(), 2);
        check(PromptKind::Decide, &["perhaps\ny"], None);
        check(PromptKind::Decide, &[""], None);
        check(PromptKind::Decide, &["n"], no(""));
        check(PromptKind::Confirm, &["n"], no(""));
        check(PromptKind::Confirm, &["l", "yes"], Some(PromptAnswer::Yes));
        let screen = check(PromptKind::Decide, &["withdrawn"], None);
        assert!(screen.ends_with("withdrawn: no answer is needed any more\n"), "{screen}");
    }

    /// Spec: A3
    #[test]
    fn a_flat_schema_is_asked_field_by_field() {
        let form = || {
            Some(DataForm::from_schema(&JsonText::from(&serde_json::json!({
                "type": "object",
                "properties": {
                    "day": {"type": "string", "description": "when it leaves\u{1b}[2J"},
                    "gift": {"type": "boolean"},
                    "how": {"enum": ["air", "sea"]},
                    "parcels": {"type": "integer", "minimum": 1},
                    "weight": {"type": "number"},
                },
                "required": ["day", "parcels"],
            }))))
        };
        let given = |text| Some(PromptAnswer::Given(JsonText::parse(text).unwrap()));
        let (kind, decide) = (PromptKind::Confirm, PromptKind::Decide);
        let all = "y\nmonday\nyes\nsea\n2\n1.5\n";
        let screen = check_form(
            kind,
            form(),
            &[all],
            given(r#"{"day":"monday","gift":true,"how":"sea","parcels":2,"weight":1.5}"#),
        );
        assert!(screen.contains("day (text, required): when it leaves\\u001b[2J\n"), "{screen}");
        assert!(screen.contains("how (one of air, sea, optional): "), "{screen}");
        // An invalid answer gets an error and is asked again: first by field, then as a whole.
        let wrong = "y\n\nmonday\nperhaps\n\nrail\n\n1.5\n0\n\nmonday\n\n\n1\n\n";
        let screen = check_form(decide, form(), &[wrong], given(r#"{"day":"monday","parcels":1}"#));
        for said in ["it is required", "y or n", "one of the values", "an integer", "at least 1"] {
            assert!(screen.contains(said), "{said}: {screen}");
        }
        check_form(decide, form(), &["y\nmonday\n"], None);
        check_form(decide, form(), &["y\nwithdrawn\n"], None);
        check_form(decide, form(), &["n\nno\n"], Some(PromptAnswer::No("no".to_owned())));
        check_form(PromptKind::Answer, form(), &["l", "n"], Some(PromptAnswer::No(String::new())));
        let nested =
            serde_json::json!({"type": "object", "properties": {"at": {"type": "object"}}});
        let nested = Some(DataForm::from_schema(&JsonText::from(&nested)));
        let typed = "y\n{\n[]\n{\"at\": {}}\n";
        let screen = check_form(decide, nested, &[typed], given(r#"{"at":{}}"#));
        assert!(screen.contains("it is no JSON"), "{screen}");
        assert!(screen.contains("data must be an object"), "{screen}");
    }
}
