//! Lists of bytes: what is printed byte by byte as numbers, such as `68:65:6c`, `[104, 101]` or a dump.

use std::ops::{Range, RangeInclusive};

use crate::escapes::{ends_escape, is_blank};
use crate::forms::Forms;

/// What of a list's text may stand between two of its bytes, white space aside, as in `chr(104) + chr(101)`.
const MAX_GAP: usize = 16;
/// Between two rows of a dump stand its text column and an offset.
const MAX_ROW_GAP: usize = 64;
/// A longer gap is none, white space included.
const MAX_SPACE: usize = 256;
/// A longer number is no element of a list.
const MAX_NUMBER: usize = 96;
/// A row of a dump; what follows is its text column.
const ROW_BYTES: usize = 16;
/// A shorter number at the head of a row is no offset.
const MIN_OFFSET_DIGITS: usize = 6;
/// How many bytes of a list are collected before they are searched.
const MAX_COLLECTED: usize = 64 * 1024;

const PREFIXES: [&[u8]; 9] = [b"0x", b"0X", b"0o", b"0O", b"0b", b"0B", b"x", b"X", b"u"];
const SUFFIXES: [&[u8]; 9] = [b"", b"h", b"H", b"u8", b"U8", b"i8", b"u", b"U", b"L"];

/// What was found in a text that may go on.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) found: Vec<Spelled>,
    /// Where a list may begin that is a secret by what is still to come.
    pub(crate) open: Option<usize>,
}

/// A list that spells a form of a secret.
#[derive(Debug)]
pub(crate) struct Spelled {
    pub(crate) range: Range<usize>,
    /// Where the row begins that says how it is read, or the list itself.
    pub(crate) kept_from: usize,
}

/// Finds the lists of bytes that spell a form of a secret. `is_within_word` says that the text begins
/// with the rest of a word; `ends`, that nothing follows it.
pub(crate) fn scan(forms: &Forms, text: &[u8], is_within_word: bool, ends: bool) -> Lists {
    let mut lists = Lists::default();
    let mut readers = READINGS.map(Reader::new);
    let mut at = if is_within_word { word_end(text, 0) } else { 0 };
    let mut until = text.len();
    while let Some(word) = next_word(text, at) {
        if !ends && is_unfinished(text, &word) {
            if may_be_number(&text[word.clone()]) {
                lists.open = Some(word.start);
                until = word.start;
            }
            break;
        }
        at = word.end;
        match Number::of(&text[word.clone()]) {
            Some(number) => {
                let is_name = is_name(text, &word);
                for reader in &mut readers {
                    if !reader.begin_row(number, word.start) {
                        let read = if is_name { None } else { reader.reading.bytes_of(number) };
                        reader.take(forms, text, &word, read, &mut lists.found);
                    }
                }
            }
            None => readers.iter_mut().for_each(Reader::end_row),
        }
    }
    for reader in &mut readers {
        reader.search(forms, &mut lists.found);
        if !ends {
            let open = reader.open(forms, &text[..until]);
            lists.open = [lists.open, open].into_iter().flatten().min();
        }
    }
    lists
}

/// How numbers are read as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Binary,
    Decimal,
    /// Rows as `xxd` and `hexdump -C` print them.
    Dump,
    Hex,
    Octal,
    /// Rows of little-endian words, as `hexdump` and `od -x` print them.
    SwappedDump,
}

const READINGS: [Reading; 6] = [
    Reading::Binary,
    Reading::Decimal,
    Reading::Dump,
    Reading::Hex,
    Reading::Octal,
    Reading::SwappedDump,
];

impl Reading {
    const fn is_dump(self) -> bool {
        matches!(self, Self::Dump | Self::SwappedDump)
    }

    /// Returns the bytes of a number, where it is one.
    fn bytes_of(self, number: Number<'_>) -> Option<Bytes> {
        let Number { digits, form, .. } = number;
        match (self, form) {
            (Self::Binary, Form::Plain) => {
                let digits = [b"0b", b"0B"].iter().find_map(|it| digits.strip_prefix(*it));
                small(digits.unwrap_or(number.digits), 2, 7..=8)
            }
            (Self::Decimal, Form::Plain) => small(digits, 10, 1..=3),
            (Self::Octal, Form::Plain | Form::Octal) => small(digits, 8, 1..=4),
            (Self::Hex, Form::Plain | Form::Hex) => pairs(digits),
            (Self::Hex, Form::CodeUnit) if digits.len() >= 4 => pairs(digits),
            (Self::Dump, Form::Plain) if number.is_bare && matches!(digits.len(), 2 | 4) => {
                pairs(digits)
            }
            (Self::SwappedDump, Form::Plain) if number.is_bare && digits.len() == 4 => {
                pairs(digits).map(|Bytes { bytes: [low, high, ..], .. }| Bytes::of(&[high, low]))
            }
            _ => None,
        }
    }
}

/// A word that may be a number: digits, with what says how they are read.
#[derive(Debug, Clone, Copy)]
struct Number<'t> {
    word: &'t [u8],
    /// Hexadecimal ones, without what stands before and behind them.
    digits: &'t [u8],
    form: Form,
    /// Is there no suffix?
    is_bare: bool,
}

/// What stands before the digits.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// `u`, as in `\u0068`.
    CodeUnit,
    /// `0x`, or `x` as in `\x68`.
    Hex,
    /// `0o`.
    Octal,
    /// Nothing; the `0b` of binary numbers are digits too.
    Plain,
}

impl<'t> Number<'t> {
    fn of(word: &'t [u8]) -> Option<Self> {
        let (form, rest) = match word {
            [b'0', b'x' | b'X', rest @ ..] | [b'x' | b'X', rest @ ..] => (Form::Hex, rest),
            [b'u', rest @ ..] => (Form::CodeUnit, rest),
            [b'0', b'o' | b'O', rest @ ..] => (Form::Octal, rest),
            _ => (Form::Plain, word),
        };
        let length = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, suffix) = rest.split_at(length);
        let is_number = length > 0 && word.len() <= MAX_NUMBER && SUFFIXES.contains(&suffix);
        is_number.then_some(Self { word, digits, form, is_bare: suffix.is_empty() })
    }

    fn is_offset(self) -> bool {
        self.digits.len() >= MIN_OFFSET_DIGITS && is_offset(self.word)
    }
}

/// The bytes of one number.
#[derive(Debug, Clone, Copy)]
struct Bytes {
    bytes: [u8; MAX_NUMBER / 2],
    length: usize,
}

impl Bytes {
    fn of(bytes: &[u8]) -> Self {
        let mut all = Self { bytes: [0; MAX_NUMBER / 2], length: bytes.len() };
        all.bytes[..bytes.len()].copy_from_slice(bytes);
        all
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Collects the bytes of one list in one reading.
#[derive(Debug)]
struct Reader {
    reading: Reading,
    bytes: Vec<u8>,
    /// Where each byte comes from.
    places: Vec<Place>,
    /// Where what was collected last ends.
    end: usize,
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
    const fn new(reading: Reading) -> Self {
        Self { reading, bytes: Vec::new(), places: Vec::new(), end: 0, row: None }
    }

    /// Begins a row of a dump, where that is what is read and this is its offset.
    fn begin_row(&mut self, number: Number<'_>, at: usize) -> bool {
        let begins = self.reading.is_dump() && number.is_offset();
        if begins {
            self.row = Some(Row { start: at, taken: 0, end: at + number.word.len() });
        }
        begins
    }

    /// Takes the bytes of the next number, if it is one in this reading.
    fn take(
        &mut self,
        forms: &Forms,
        text: &[u8],
        word: &Range<usize>,
        read: Option<Bytes>,
        found: &mut Vec<Spelled>,
    ) {
        let is_read = !self.reading.is_dump() || self.row.is_some();
        let Some(read) = read.filter(|_| is_read) else { return self.end_row() };
        if !self.bytes.is_empty() && !self.is_gap(&text[self.end..word.start]) {
            self.search(forms, found);
            self.bytes.clear();
            self.places.clear();
        }
        self.bytes.extend_from_slice(read.as_slice());
        self.end = word.end;
        let mut kept_from = word.start;
        if let Some(row) = &mut self.row {
            kept_from = row.start;
            row.taken += read.length;
            row.end = word.end;
        }
        let place = Place { start: word.start, end: word.end, kept_from };
        self.places.resize(self.bytes.len(), place);
        self.row = self.row.filter(|row| row.taken < ROW_BYTES);
        if self.bytes.len() >= MAX_COLLECTED {
            self.search(forms, found);
            let searched = self.bytes.len() - (forms.longest() - 1).min(self.bytes.len());
            self.bytes.drain(..searched);
            self.places.drain(..searched);
        }
    }

    /// The text column begins.
    fn end_row(&mut self) {
        self.row = None;
    }

    fn search(&self, forms: &Forms, found: &mut Vec<Spelled>) {
        if self.bytes.len() < forms.shortest() {
            return;
        }
        for range in forms.matches(&self.bytes) {
            let (first, last) = (self.places[range.start], self.places[range.end - 1]);
            found.push(Spelled { range: first.start..last.end, kept_from: first.kept_from });
        }
    }

    /// Returns from where on the text has to be kept, because the list may go on.
    fn open(&self, forms: &Forms, text: &[u8]) -> Option<usize> {
        let row = self.row.filter(|row| self.is_gap(&text[row.end..])).map(|row| row.start);
        let is_open = !self.bytes.is_empty() && self.is_gap(&text[self.end..]);
        let at = if is_open { forms.open_at_end(&self.bytes) } else { None };
        [row, at.map(|at| self.places[at].kept_from)].into_iter().flatten().min()
    }

    /// May this stand between two bytes of a list?
    fn is_gap(&self, between: &[u8]) -> bool {
        let most = if self.reading.is_dump() { MAX_ROW_GAP } else { MAX_GAP };
        between.len() <= most
            || between.len() <= MAX_SPACE
                && between.iter().filter(|byte| !byte.is_ascii_whitespace()).count() <= most
    }
}

/// Returns the next run of letters and digits. A letter that ends an escape, as in `\n`, begins none.
fn next_word(text: &[u8], from: usize) -> Option<Range<usize>> {
    let mut at = from;
    loop {
        at += text[at..].iter().position(|byte| *byte == b'\\' || is_of_word(*byte))?;
        if text[at] != b'\\' {
            return Some(at..word_end(text, at));
        }
        let is_escape = text.get(at + 1).is_some_and(|byte| ends_escape(*byte));
        at += if is_escape { 2 } else { 1 };
    }
}

fn word_end(text: &[u8], from: usize) -> usize {
    let rest = &text[from..];
    from + rest.iter().position(|byte| !is_of_word(*byte)).unwrap_or(rest.len())
}

/// Letters and digits, looked up: that takes half the time of comparing.
const fn is_of_word(byte: u8) -> bool {
    WORD[byte as usize]
}

static WORD: [bool; 256] = {
    let mut word = [false; 256];
    let mut byte: u8 = 0;
    while byte < 128 {
        word[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    word
};

/// Does it take what follows to say what this word is?
fn is_unfinished(text: &[u8], word: &Range<usize>) -> bool {
    let rest = &text[word.end..];
    // Blanks at the end may be part of a fold, which joins the word with what follows.
    let blanks = rest.iter().take_while(|byte| is_blank(**byte)).count();
    rest == b"\"" || (blanks == rest.len() && blanks <= MAX_SPACE)
}

/// Is this the index in `{"0": 104, "1": 101}`?
fn is_name(text: &[u8], word: &Range<usize>) -> bool {
    text[word.end..].starts_with(b"\":")
}

/// Is this the beginning of a number, of whatever reading?
fn may_be_number(word: &[u8]) -> bool {
    let is_begun = |rest: &[u8]| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        SUFFIXES.iter().any(|suffix| suffix.starts_with(&rest[digits..]))
    };
    word.len() <= MAX_NUMBER
        && (is_begun(word)
            || PREFIXES.iter().any(|prefix| word.strip_prefix(*prefix).is_some_and(is_begun)))
}

fn is_offset(word: &[u8]) -> bool {
    let digits = word.strip_prefix(b"0x").unwrap_or(word);
    (MIN_OFFSET_DIGITS..=16).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit)
}

/// Reads a number of one byte.
fn small(digits: &[u8], radix: u32, lengths: RangeInclusive<usize>) -> Option<Bytes> {
    if !lengths.contains(&digits.len()) {
        return None;
    }
    let number = digits
        .iter()
        .try_fold(0, |number, byte| Some(number * radix + char::from(*byte).to_digit(radix)?))?;
    u8::try_from(number).ok().map(|byte| Bytes::of(&[byte]))
}

/// Reads one digit, or pairs of digits: one byte, or several as in `6865 6c64`.
fn pairs(digits: &[u8]) -> Option<Bytes> {
    if digits.len() > 1 && digits.len() % 2 == 1 {
        return None;
    }
    let mut read = Bytes::of(&[]);
    for pair in digits.chunks(2) {
        let digit = |number: u32, byte: &u8| Some(number << 4 | char::from(*byte).to_digit(16)?);
        let byte = pair.iter().try_fold(0, digit)?;
        read.bytes[read.length] = u8::try_from(byte).ok()?;
        read.length += 1;
    }
    Some(read)
}
