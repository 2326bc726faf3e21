//! Line editor with a history by arrow keys.
//!
//! The editor controls the terminal while it reads; it draws only the prompt and the typed text.

use std::io::stdin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

#[cfg(unix)]
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::config::{BellStyle, Builder};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{ColorMode, Editor};

use super::screen::SCREEN;
use crate::exit::CliError;

/// State of the terminal before the first edited line.
#[cfg(unix)]
static BEFORE: OnceLock<Option<Termios>> = OnceLock::new();

/// Restores the state of the terminal.
pub(super) fn put_back() {
    #[cfg(unix)]
    if let Some(Some(before)) = BEFORE.get() {
        // If that fails, there is nothing else to do.
        let _ = tcsetattr(stdin(), OptionalActions::Now, before);
    }
}

/// The result of reading a line.
pub(crate) enum LineInput {
    /// End of the input.
    End,
    /// Ctrl-C.
    Interrupted,
    Text(String),
}

/// A reader of lines, one at a time.
#[derive(Clone)]
pub(crate) struct SharedLineEditor(Arc<Mutex<Editor<(), DefaultHistory>>>);

impl SharedLineEditor {
    /// Returns a reader whose history has these lines, oldest first.
    pub(crate) fn new(earlier: &[String]) -> Result<Self, CliError> {
        #[cfg(unix)]
        BEFORE.get_or_init(|| tcgetattr(stdin()).ok());
        let failed = |error| CliError::internal("reading the terminal", error);
        let config = Builder::new()
            .bell_style(BellStyle::None)
            .color_mode(ColorMode::Disabled)
            .auto_add_history(false)
            .build();
        let mut editor = Editor::with_config(config).map_err(failed)?;
        for line in earlier {
            editor.add_history_entry(line).map_err(failed)?;
        }
        Ok(Self(Arc::new(Mutex::new(editor))))
    }

    /// Reads a line that initially contains `begun`, after all earlier notes are written.
    pub(crate) async fn read(&self, begun: String) -> Result<LineInput, CliError> {
        let editor = Arc::clone(&self.0);
        let read = tokio::task::spawn_blocking(move || {
            SCREEN.drain();
            let mut editor = editor.lock().unwrap_or_else(PoisonError::into_inner);
            let line = match begun.as_str() {
                "" => editor.readline("> "),
                begun => editor.readline_with_initial("> ", (begun, "")),
            };
            if let Ok(line) = &line
                && !line.trim().is_empty()
            {
                editor.add_history_entry(line)?;
            }
            line
        });
        let failed = |error| CliError::internal("reading the terminal", error);
        match read.await.map_err(|error| CliError::internal("reading the terminal", error))? {
            Ok(line) => Ok(LineInput::Text(line)),
            Err(ReadlineError::Interrupted) => Ok(LineInput::Interrupted),
            Err(ReadlineError::Eof) => Ok(LineInput::End),
            Err(error) => Err(failed(error)),
        }
    }
}
