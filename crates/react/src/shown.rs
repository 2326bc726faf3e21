//! What listeners are shown of an answer while it comes.

use backstop_redact::{Redactor, StreamRedactor};

use crate::live::Piece;

/// What can be shown at one time: of the thinking and of the text.
pub(crate) type Pieces = [Option<Piece>; 2];

/// Holds back what may be the beginning of a secret, of text and thinking each by itself: pieces of
/// the one may come between those of the other.
#[derive(Debug)]
pub(crate) struct Shown {
    thinking: StreamRedactor,
    text: StreamRedactor,
}

impl Shown {
    pub(crate) fn new(redactor: &Redactor) -> Self {
        Self { thinking: redactor.stream(), text: redactor.stream() }
    }

    pub(crate) fn text(&mut self, piece: &str) -> Pieces {
        [None, text(self.text.push(piece))]
    }

    pub(crate) fn thinking(&mut self, piece: &str) -> Pieces {
        [thinking(self.thinking.push(piece)), None]
    }

    /// The answer is complete: nothing is held back any more.
    pub(crate) fn finish(&mut self) -> Pieces {
        [thinking(self.thinking.finish()), text(self.text.finish())]
    }

    /// The answer came to nothing.
    pub(crate) fn discard(&mut self) -> Pieces {
        self.thinking.discard();
        self.text.discard();
        [None, None]
    }
}

fn text(piece: String) -> Option<Piece> {
    (!piece.is_empty()).then(|| Piece::Text(piece.into()))
}

fn thinking(piece: String) -> Option<Piece> {
    (!piece.is_empty()).then(|| Piece::Thinking(piece.into()))
}
