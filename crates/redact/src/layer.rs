//! A text with one layer of encoding removed.

use std::ops::Range;

use crate::colour::{Escape, MAX_HIDDEN};
use crate::escapes::{escape, is_blank, is_special};
use crate::steps;

/// The most nested encodings that are removed.
pub(crate) const MAX_LAYERS: usize = 5;

/// The replacement of a longer run: a separator that no key contains.
const GAP: u8 = 0x1e;

/// A text with escapes of JSON and program text, percent-encoding and HTML entities decoded, folded
/// lines joined and colours removed, and the source position of each byte.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) bytes: Vec<u8>,
    pieces: Vec<LayerPiece>,
    /// The last run that was left out.
    hidden: Option<Hidden>,
    /// The start in the source of a sequence that may be incomplete.
    pub(crate) tail: Option<usize>,
}

/// A run of source that is left out between two bytes of a layer.
#[derive(Debug, Clone, Copy)]
struct Hidden {
    /// Its place in the layer.
    out: usize,
    /// Its start in the source.
    begin: usize,
}

#[derive(Debug, Clone, Copy)]
struct LayerPiece {
    /// Its start in the layer.
    out: usize,
    /// Its start in the source.
    source: usize,
    /// The length of an escape in the source; 0 for copied bytes.
    escape: usize,
}

impl Layer {
    /// Removes a layer of encoding; `None` without one. `ends` is whether the source is complete.
    pub(crate) fn decode(source: &[u8], ends: bool) -> Option<Self> {
        steps::count(source.len());
        let first = source.iter().position(|byte| is_special(*byte))?;
        let mut layer = Self {
            bytes: Vec::with_capacity(source.len()),
            pieces: vec![LayerPiece { out: 0, source: 0, escape: 0 }],
            hidden: None,
            tail: None,
        };
        layer.bytes.extend_from_slice(&source[..first]);
        let mut at = first;
        while at < source.len() {
            at = match escape(&source[at..]) {
                Escape::Char(decoded, length) => {
                    let mut utf8 = [0; 4];
                    layer.escape(at, length, decoded.encode_utf8(&mut utf8).as_bytes());
                    at + length
                }
                Escape::Byte(decoded, length) => {
                    layer.escape(at, length, &[decoded]);
                    at + length
                }
                Escape::Line(length) => layer.fold(source, at, at + length),
                Escape::Unseen(length) => {
                    layer.leave_out(at, at + length);
                    at + length + layer.plain(source, at + length)
                }
                Escape::Cut if !ends => {
                    layer.tail = Some(at);
                    break;
                }
                Escape::Cut | Escape::None => layer.copy(source, at),
            };
        }
        Some(layer)
    }

    fn escape(&mut self, source: usize, escape: usize, decoded: &[u8]) {
        self.pieces.push(LayerPiece { out: self.bytes.len(), source, escape });
        self.bytes.extend_from_slice(decoded);
    }

    /// Copies the source up to the next escape.
    fn copy(&mut self, source: &[u8], at: usize) -> usize {
        let rest = &source[at + 1..];
        let length = rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len());
        let end = at + 1 + length;
        self.pieces.push(LayerPiece { out: self.bytes.len(), source: at, escape: 0 });
        self.bytes.extend_from_slice(&source[at..end]);
        end
    }

    /// Joins two lines: removes the line end and the blanks around it.
    fn fold(&mut self, source: &[u8], begin: usize, end: usize) -> usize {
        // An escaped blank is intentional.
        let copied = self.pieces.last().filter(|piece| piece.escape == 0);
        let copied = copied.map_or(self.bytes.len(), |piece| piece.out);
        let copied = self.bytes[copied..].iter().rev();
        let before = copied.take_while(|byte| is_blank(**byte)).count();
        steps::count(before);
        let kept = self.bytes.len() - before;
        let hidden = self.hidden_at(kept, begin);
        // Each escape is a separate piece, so that a range is only widened by those it cuts.
        self.pieces.push(LayerPiece { out: kept, source: begin, escape: end - begin });
        let mut at = end;
        while let Some(byte) = source.get(at) {
            let length = match escape(&source[at..]) {
                Escape::Line(length) => length,
                Escape::Byte(decoded, length) if is_blank(decoded) => length,
                _ if is_blank(*byte) => 1,
                _ => break,
            };
            self.pieces.push(LayerPiece { out: kept, source: at, escape: length });
            at += length;
        }
        self.bytes.truncate(kept);
        self.separate(hidden, at);
        self.pieces.push(LayerPiece { out: self.bytes.len(), source: at, escape: 0 });
        at + self.plain(source, at)
    }

    /// Removes a part of the source; the text after it is a separate piece.
    fn leave_out(&mut self, begin: usize, end: usize) {
        let hidden = self.hidden_at(self.bytes.len(), begin);
        self.escape(begin, end - begin, b"");
        self.separate(hidden, end);
        self.pieces.push(LayerPiece { out: self.bytes.len(), source: end, escape: 0 });
    }

    /// Returns the removed run that a part of the source belongs to: the last one, if no byte was
    /// copied since.
    fn hidden_at(&mut self, out: usize, begin: usize) -> Hidden {
        let last = self.hidden.filter(|hidden| hidden.out == out);
        let hidden = last.unwrap_or(Hidden { out, begin });
        self.hidden = Some(hidden);
        hidden
    }

    /// Puts a separator after a run that is too long. Its pieces are kept, so that a range is
    /// widened by at most one of them.
    fn separate(&mut self, hidden: Hidden, end: usize) {
        if end - hidden.begin > MAX_HIDDEN {
            self.bytes.truncate(hidden.out);
            self.bytes.push(GAP);
            self.hidden = None;
        }
    }

    fn plain(&mut self, source: &[u8], at: usize) -> usize {
        let rest = &source[at..];
        let length = rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len());
        self.bytes.extend_from_slice(&rest[..length]);
        length
    }

    /// Returns the range of the source for a range of the layer.
    pub(crate) fn to_source(&self, range: &Range<usize>) -> Range<usize> {
        let (first, last) = (self.piece_at(range.start), self.piece_at(range.end - 1));
        let start = if first.escape > 0 { first.source } else { first.place_at(range.start) };
        let end = match last.escape {
            0 => last.place_at(range.end - 1) + 1,
            length => last.source + length,
        };
        start..end
    }

    /// Returns the position of a byte in the source.
    pub(crate) fn source_at(&self, out: usize) -> usize {
        self.to_source(&(out..out + 1)).start
    }

    fn piece_at(&self, out: usize) -> LayerPiece {
        let after = self.pieces.partition_point(|piece| piece.out <= out);
        self.pieces[after.saturating_sub(1)]
    }

    /// Widens a range of the source so that it cuts no escape in half.
    pub(crate) fn widen(&self, range: Range<usize>) -> Range<usize> {
        let cut = |at: usize| {
            let after = self.pieces.partition_point(|piece| piece.source < at);
            let piece = self.pieces[..after].last()?;
            // A cut may fall into a fold, unless the fold is written as an escape.
            (at < piece.source + piece.escape).then_some(piece)
        };
        let start = cut(range.start).map_or(range.start, |piece| piece.source);
        let end = cut(range.end).map_or(range.end, |piece| piece.source + piece.escape);
        start..end
    }
}

impl LayerPiece {
    const fn place_at(self, out: usize) -> usize {
        self.source + (out - self.out)
    }
}
