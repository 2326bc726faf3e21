//! Lists of bytes: what is printed byte by byte as numbers, such as `68:65:6c`, `[104, 101]` or a dump.

use std::ops::Range;

use crate::escapes::is_blank;
use crate::held::Held;

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
pub(crate) fn scan(held: &Held, text: &[u8], is_within_word: bool, ends: bool) -> Lists {
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
        if !looks_like_number(&text[word.clone()]) {
            readers.iter_mut().for_each(Reader::end_row);
            continue;
        }
        for reader in &mut readers {
            reader.read(held, text, &word, &mut lists.found);
        }
    }
    for reader in &mut readers {
        reader.search(held, &mut lists.found);
        if !ends {
            let open = reader.open(held, &text[..until]);
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

    /// Reads the bytes of a number into `bytes`; says whether it is one.
    fn bytes_of(self, word: &[u8], bytes: &mut Vec<u8>) -> bool {
        match self {
            Self::Binary => small(word, &[b"0b", b"0B"], 2, 7..=8, bytes),
            Self::Decimal => small(word, &[], 10, 1..=3, bytes),
            Self::Octal => small(word, &[b"0o", b"0O"], 8, 1..=4, bytes),
            Self::Hex => hex(word, bytes),
            Self::Dump => matches!(word.len(), 2 | 4) && pairs(word, bytes),
            Self::SwappedDump => {
                word.len() == 4 && pairs(word, bytes) && {
                    let end = bytes.len();
                    bytes.swap(end - 2, end - 1);
                    true
                }
            }
        }
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

    fn read(&mut self, held: &Held, text: &[u8], word: &Range<usize>, found: &mut Vec<Spelled>) {
        let number = &text[word.clone()];
        if self.reading.is_dump() && is_offset(number) {
            self.row = Some(Row { start: word.start, taken: 0, end: word.end });
            return;
        }
        let collected = self.bytes.len();
        let is_read = (!self.reading.is_dump() || self.row.is_some())
            && !is_name(text, word)
            && self.reading.bytes_of(number, &mut self.bytes);
        if !is_read {
            self.end_row();
            return;
        }
        if collected > 0 && !self.is_gap(&text[self.end..word.start]) {
            let next = self.bytes.split_off(collected);
            self.search(held, found);
            self.bytes = next;
            self.places.clear();
        }
        self.end = word.end;
        let mut kept_from = word.start;
        if let Some(row) = &mut self.row {
            kept_from = row.start;
            row.taken += self.bytes.len() - self.places.len();
            row.end = word.end;
        }
        let place = Place { start: word.start, end: word.end, kept_from };
        self.places.resize(self.bytes.len(), place);
        self.row = self.row.filter(|row| row.taken < ROW_BYTES);
        if self.bytes.len() >= MAX_COLLECTED {
            self.search(held, found);
            let searched = self.bytes.len() - (held.longest() - 1).min(self.bytes.len());
            self.bytes.drain(..searched);
            self.places.drain(..searched);
        }
    }

    /// The text column begins.
    fn end_row(&mut self) {
        self.row = None;
    }

    fn search(&self, held: &Held, found: &mut Vec<Spelled>) {
        for range in held.matches(&self.bytes) {
            let (first, last) = (self.places[range.start], self.places[range.end - 1]);
            found.push(Spelled { range: first.start..last.end, kept_from: first.kept_from });
        }
    }

    /// Returns from where on the text has to be kept, because the list may go on.
    fn open(&self, held: &Held, text: &[u8]) -> Option<usize> {
        let row = self.row.filter(|row| self.is_gap(&text[row.end..])).map(|row| row.start);
        let is_open = !self.bytes.is_empty() && self.is_gap(&text[self.end..]);
        let at = if is_open { held.open_at_end(&self.bytes) } else { None };
        [row, at.map(|at| self.places[at].kept_from)].into_iter().flatten().min()
    }

    /// May this stand between two bytes of a list?
    fn is_gap(&self, between: &[u8]) -> bool {
        let most = if self.reading.is_dump() { MAX_ROW_GAP } else { MAX_GAP };
        between.len() <= MAX_SPACE
            && between.iter().filter(|byte| !byte.is_ascii_whitespace()).count() <= most
    }
}

/// Returns the next run of letters and digits. A letter that ends an escape, as in `\n`, begins none.
fn next_word(text: &[u8], from: usize) -> Option<Range<usize>> {
    let mut at = from;
    loop {
        at += text[at..].iter().position(|byte| *byte == b'\\' || byte.is_ascii_alphanumeric())?;
        if text[at] != b'\\' {
            return Some(at..word_end(text, at));
        }
        let is_escape = text.get(at + 1).is_some_and(|byte| ends_escape(*byte));
        at += if is_escape { 2 } else { 1 };
    }
}

/// Is this the letter of an escape that stands for white space?
pub(crate) const fn ends_escape(byte: u8) -> bool {
    matches!(byte, b'n' | b'r' | b't')
}

fn word_end(text: &[u8], from: usize) -> usize {
    let rest = &text[from..];
    from + rest.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(rest.len())
}

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

/// Rules most words out by their ends.
const fn looks_like_number(word: &[u8]) -> bool {
    let [first, ..] = word else { return false };
    let [.., last] = word else { return false };
    (first.is_ascii_hexdigit() || matches!(first, b'x' | b'X' | b'u'))
        && (last.is_ascii_hexdigit() || matches!(last, b'h' | b'H' | b'u' | b'U' | b'L'))
        && word.len() <= MAX_NUMBER
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
fn small(
    word: &[u8],
    prefixes: &[&[u8]],
    radix: u32,
    digits: std::ops::RangeInclusive<usize>,
    bytes: &mut Vec<u8>,
) -> bool {
    let rest = prefixes.iter().find_map(|prefix| word.strip_prefix(*prefix)).unwrap_or(word);
    let length = rest.iter().take_while(|byte| char::from(**byte).is_digit(radix)).count();
    if !digits.contains(&length) || !SUFFIXES.contains(&&rest[length..]) {
        return false;
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(radix).unwrap_or_default();
    let number = rest[..length].iter().fold(0, |number, byte| number * radix + digit(byte));
    u8::try_from(number).map(|byte| bytes.push(byte)).is_ok()
}

/// Reads a number of one byte, or of several in pairs of digits, as in `6865 6c64`.
fn hex(word: &[u8], bytes: &mut Vec<u8>) -> bool {
    let prefixes: [&[u8]; 5] = [b"0x", b"0X", b"x", b"X", b"u"];
    let rest = prefixes.iter().find_map(|prefix| word.strip_prefix(*prefix)).unwrap_or(word);
    let length = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, suffix) = rest.split_at(length);
    // `u8` is a suffix that stands by itself, as in `0x68_u8`.
    let is_code_unit = word[0] != b'u' || length >= 4;
    SUFFIXES.contains(&suffix) && is_code_unit && pairs(digits, bytes)
}

/// Reads pairs of digits, or one digit.
fn pairs(digits: &[u8], bytes: &mut Vec<u8>) -> bool {
    if digits.is_empty() || (digits.len() > 1 && digits.len() % 2 == 1) {
        return false;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let begin = bytes.len();
    for pair in digits.chunks(2) {
        let byte = pair.iter().try_fold(0, |number, byte| Some(number << 4 | digit(*byte)?));
        let Some(byte) = byte else {
            bytes.truncate(begin);
            return false;
        };
        bytes.push(byte);
    }
    true
}
