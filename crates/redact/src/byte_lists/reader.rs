//! Collects the bytes of a list.

use std::ops::Range;

use crate::forms::Forms;

/// What of a list's text may stand between two of its bytes, white space aside, as in `chr(104) + chr(101)`.
const MAX_GAP: usize = 16;
/// Between two rows of a dump stand its text column and an offset.
const MAX_ROW_GAP: usize = 64;
/// A longer gap is none, white space included.
pub(super) const MAX_SPACE: usize = 256;
/// A row of a dump; what follows is its text column.
const ROW_BYTES: usize = 16;
/// How many bytes of a list are collected before they are searched.
const MAX_COLLECTED: usize = 64 * 1024;

/// A list that spells a form of a secret.
#[derive(Debug)]
pub(crate) struct Spelled {
    pub(crate) range: Range<usize>,
    /// Where the row begins that says how it is read, or the list itself.
    pub(crate) kept_from: usize,
}

/// Collects the bytes of one list in one reading.
#[derive(Debug, Default)]
pub(super) struct Reader {
    bytes: Vec<u8>,
    /// Where each byte comes from.
    places: Vec<Place>,
    /// Where what was collected last ends.
    end: usize,
    /// Is it read from the rows of a dump?
    in_rows: bool,
    row: Option<Row>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    end: usize,
    /// From where on the text has to be kept, to read the byte again.
    kept_from: usize,
}

/// A row of a dump that is not over.
#[derive(Debug, Clone, Copy)]
struct Row {
    start: usize,
    taken: usize,
    end: usize,
}

impl Reader {
    /// Reads rows as dumps have them, instead of numbers wherever they stand.
    pub(super) fn of_rows() -> Self {
        Self { in_rows: true, ..Self::default() }
    }

    /// Begins a row, whose offset this is.
    pub(super) fn begin_row(&mut self, offset: &Range<usize>) {
        self.row = Some(Row { start: offset.start, taken: 0, end: offset.end });
    }

    /// Is there a row that is not over?
    pub(super) const fn has_row(&self) -> bool {
        self.row.is_some()
    }

    /// The text column begins.
    pub(super) fn end_row(&mut self) {
        self.row = None;
    }

    /// Takes the bytes of the next number.
    #[inline]
    pub(super) fn take(
        &mut self,
        forms: &Forms,
        text: &[u8],
        word: &Range<usize>,
        bytes: impl ExactSizeIterator<Item = u8> + Clone,
        found: &mut Vec<Spelled>,
    ) {
        // No form goes on over bytes that none has.
        let is_foreign = !bytes.clone().any(|byte| forms.have(byte));
        if is_foreign && self.bytes.is_empty() && !self.in_rows {
            return;
        }
        let kept_from = self.row.map_or(word.start, |row| row.start);
        if let Some(row) = &mut self.row {
            row.taken += bytes.len();
            row.end = word.end;
        }
        self.row = self.row.filter(|row| row.taken < ROW_BYTES);
        if !self.bytes.is_empty() && (is_foreign || !self.is_gap(&text[self.end..word.start])) {
            self.search(forms, found);
            self.bytes.clear();
            self.places.clear();
        }
        if is_foreign {
            return;
        }
        self.end = word.end;
        self.bytes.extend(bytes);
        self.places.resize(self.bytes.len(), Place { start: word.start, end: word.end, kept_from });
        if self.bytes.len() >= MAX_COLLECTED {
            self.search(forms, found);
            let searched = self.bytes.len() - (forms.longest() - 1).min(self.bytes.len());
            self.bytes.drain(..searched);
            self.places.drain(..searched);
        }
    }

    /// Searches what was collected.
    pub(super) fn search(&self, forms: &Forms, found: &mut Vec<Spelled>) {
        if self.bytes.len() < forms.shortest() {
            return;
        }
        for range in forms.matches(&self.bytes) {
            let (first, last) = (self.places[range.start], self.places[range.end - 1]);
            found.push(Spelled { range: first.start..last.end, kept_from: first.kept_from });
        }
    }

    /// Returns from where on the text has to be kept, because the list may go on.
    pub(super) fn open(&self, forms: &Forms, text: &[u8]) -> Option<usize> {
        let row = self.row.filter(|row| self.is_gap(&text[row.end..])).map(|row| row.start);
        let is_open = !self.bytes.is_empty() && self.is_gap(&text[self.end..]);
        let at = if is_open { forms.open_at_end(&self.bytes) } else { None };
        [row, at.map(|at| self.places[at].kept_from)].into_iter().flatten().min()
    }

    /// May this stand between two bytes of a list?
    fn is_gap(&self, between: &[u8]) -> bool {
        let most = if self.in_rows { MAX_ROW_GAP } else { MAX_GAP };
        between.len() <= most
            || between.len() <= MAX_SPACE
                && between.iter().filter(|byte| !byte.is_ascii_whitespace()).count() <= most
    }
}
