//! Pieces of an answer for listeners while it arrives.

use backstop_redact::{Redactor, StreamRedactor};

use crate::live::LivePiece;

/// Pieces that can be shown at one time: of the thinking and of the text.
pub(crate) type Pieces = [Option<LivePiece>; 2];

/// Holds back text that may begin a secret, in text and thinking separately: their pieces may alternate.
#[derive(Debug)]
pub(crate) struct PieceRedactor {
    thinking: StreamRedactor,
    text: StreamRedactor,
}

impl PieceRedactor {
    pub(crate) fn new(redactor: &Redactor) -> Self {
        Self { thinking: redactor.stream(), text: redactor.stream() }
    }

    pub(crate) fn text(&mut self, piece: &str) -> Pieces {
        [None, text(self.text.push(piece))]
    }

    pub(crate) fn thinking(&mut self, piece: &str) -> Pieces {
        [thinking(self.thinking.push(piece)), None]
    }

    /// Returns the rest of a complete answer.
    pub(crate) fn finish(&mut self) -> Pieces {
        [thinking(self.thinking.finish()), text(self.text.finish())]
    }

    /// Drops the rest of an answer that failed.
    pub(crate) fn discard(&mut self) -> Pieces {
        self.thinking.discard();
        self.text.discard();
        [None, None]
    }
}

fn text(piece: String) -> Option<LivePiece> {
    (!piece.is_empty()).then(|| LivePiece::Text(piece.into()))
}

fn thinking(piece: String) -> Option<LivePiece> {
    (!piece.is_empty()).then(|| LivePiece::Thinking(piece.into()))
}
