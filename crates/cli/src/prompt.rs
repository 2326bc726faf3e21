//! Asking the person at the terminal whether a tool may run.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use async_trait::async_trait;
use indicatif::ProgressBar;
use react::{ApprovalRequest, Approver, Decision};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::output::harmless;

/// Asks at the terminal, one question after the other.
pub(crate) struct Prompt {
    by: String,
    spinner: Option<ProgressBar>,
    asking: Mutex<()>,
}

impl Prompt {
    /// Makes a prompt; `None` when nobody is at a terminal. The spinner stands still while it asks.
    pub(crate) fn at_terminal(spinner: Option<ProgressBar>) -> Option<Self> {
        let somebody = stdin().is_terminal() && stderr().is_terminal();
        somebody.then(|| Self { by: user(), spinner, asking: Mutex::default() })
    }
}

#[async_trait]
impl Approver for Prompt {
    async fn decide(&self, request: &ApprovalRequest) -> Option<Decision> {
        let _turn = self.asking.lock().await;
        let (approval, by) = (request.approval.clone(), self.by.clone());
        let ask = move || {
            let asked = {
                let (tool, arguments) = (&approval.tool, &approval.arguments);
                ask(tool, arguments, &by, &mut stdin().lock(), &mut stderr().lock())
            };
            // Without an answer the question stays open.
            asked.unwrap_or_default()
        };
        let spinner = self.spinner.clone();
        let asked = tokio::task::spawn_blocking(move || match spinner {
            Some(spinner) => spinner.suspend(ask),
            None => ask(),
        });
        asked.await.ok().flatten()
    }
}

/// Shows the whole call, because that is what the decision is bound to, and reads an answer.
fn ask(
    tool: &str,
    arguments: &Value,
    by: &str,
    answers: &mut impl BufRead,
    screen: &mut impl Write,
) -> std::io::Result<Option<Decision>> {
    writeln!(screen, "\n{} needs approval:", harmless(tool))?;
    for line in shown(arguments).lines() {
        writeln!(screen, "  {line}")?;
    }
    loop {
        write!(screen, "run it? [y]es, [n]o, [l]ater: ")?;
        screen.flush()?;
        let Some(answer) = read(answers)? else { return Ok(None) };
        match answer.to_lowercase().as_str() {
            "y" | "yes" => return Ok(Some(Decision::approve(by))),
            "l" | "later" => return Ok(None),
            "n" | "no" => {
                write!(screen, "why not? the model reads it (empty for no reason): ")?;
                screen.flush()?;
                let reason = read(answers)?.unwrap_or_default();
                return Ok(Some(Decision::deny(by, reason)));
            }
            _ => writeln!(screen, "please answer y, n or l")?,
        }
    }
}

/// Reads a line; `None` at the end of input.
fn read(answers: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut line = String::new();
    let read = answers.read_line(&mut line)?;
    Ok((read > 0).then(|| line.trim().to_owned()))
}

/// Returns arguments as people read them, without what could steer a terminal.
fn shown(arguments: &Value) -> String {
    harmless(&serde_json::to_string_pretty(arguments).unwrap_or_else(|_| arguments.to_string()))
}

/// Returns who is at the terminal.
pub(crate) fn user() -> String {
    ["USER", "LOGNAME", "USERNAME"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "terminal".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(answers: &str, decision: Option<Decision>) -> String {
        let mut screen = Vec::new();
        let arguments = json!({"path": "/data", "note": "a\u{202e}b\u{1b}[2J"});
        let decided =
            ask("wipe\u{1b}]0;x", &arguments, "ada", &mut answers.as_bytes(), &mut screen).unwrap();
        assert_eq!(decided, decision);
        String::from_utf8(screen).unwrap()
    }

    /// Spec: A1, A2
    #[test]
    fn only_a_clear_answer_decides() {
        let screen = check("y\n", Some(Decision::approve("ada")));
        assert!(screen.contains("\"path\": \"/data\""), "{screen}");
        assert!(!screen.contains(['\u{1b}', '\u{202e}']), "{screen}");
        check("No\n too late \n", Some(Decision::deny("ada", "too late")));
        check("n\n\n", Some(Decision::deny("ada", "")));
        let screen = check("sure\n\nYES\n", Some(Decision::approve("ada")));
        assert_eq!(screen.matches("please answer").count(), 2);
        check("l\n", None);
        check("", None);
        check("perhaps", None);
    }
}
