//! Lists of bytes: what is printed byte by byte as numbers, such as `68:65:6c`, `[104, 101]` or a dump.

mod number;
mod reader;

use std::iter::once;
use std::ops::Range;

use self::number::{Number, may_be_number};
use self::reader::{MAX_SPACE, Reader, Spelled};
use crate::escapes::{ends_escape, is_blank};
use crate::forms::Forms;

/// What was found in a text that may go on.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) found: Vec<Spelled>,
    /// Where a list may begin that is a secret by what is still to come.
    pub(crate) open: Option<usize>,
}

/// Finds the lists of bytes that spell a form of a secret. `is_within_word` says that the text begins
/// with the rest of a word; `ends`, that nothing follows it.
pub(crate) fn scan(forms: &Forms, text: &[u8], is_within_word: bool, ends: bool) -> Lists {
    let mut lists = Lists::default();
    let mut readers = Readers::default();
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
        readers.read(forms, text, &word, &mut lists.found);
    }
    for reader in readers.all() {
        reader.search(forms, &mut lists.found);
        if !ends {
            let open = reader.open(forms, &text[..until]);
            lists.open = [lists.open, open].into_iter().flatten().min();
        }
    }
    lists
}

/// A reader for each way in which numbers are read as bytes.
struct Readers {
    binary: Reader,
    decimal: Reader,
    hex: Reader,
    octal: Reader,
    /// Rows as `xxd` and `hexdump -C` print them.
    dump: Reader,
    /// Rows of little-endian words, as `hexdump` and `od -x` print them.
    swapped: Reader,
}

impl Default for Readers {
    fn default() -> Self {
        let reader = Reader::default;
        let (dump, swapped) = (Reader::of_rows(), Reader::of_rows());
        Self { binary: reader(), decimal: reader(), hex: reader(), octal: reader(), dump, swapped }
    }
}

impl Readers {
    /// Reads a word. Each reading is written out: most words are no number in any.
    fn read(&mut self, forms: &Forms, text: &[u8], word: &Range<usize>, found: &mut Vec<Spelled>) {
        let Some(number) = Number::of(&text[word.clone()]) else { return self.end_rows() };
        if number.is_offset() {
            self.dump.begin_row(word);
            self.swapped.begin_row(word);
        } else if self.dump.has_row() || self.swapped.has_row() {
            self.read_rows(number, forms, text, word, found);
        }
        if is_name(text, word) {
            return;
        }
        if let Some(byte) = number.decimal() {
            self.decimal.take(forms, text, word, once(byte), found);
        }
        if let Some(pairs) = number.hex() {
            self.hex.take(forms, text, word, pairs.bytes(), found);
        }
        if let Some(byte) = number.octal() {
            self.octal.take(forms, text, word, once(byte), found);
        }
        if let Some(byte) = number.binary() {
            self.binary.take(forms, text, word, once(byte), found);
        }
    }

    fn read_rows(
        &mut self,
        number: Number<'_>,
        forms: &Forms,
        text: &[u8],
        word: &Range<usize>,
        found: &mut Vec<Spelled>,
    ) {
        let Some(pairs) = number.dumped().filter(|_| !is_name(text, word)) else {
            return self.end_rows();
        };
        if self.dump.has_row() {
            self.dump.take(forms, text, word, pairs.bytes(), found);
        }
        if pairs.bytes().len() != 2 {
            self.swapped.end_row();
        } else if self.swapped.has_row() {
            self.swapped.take(forms, text, word, pairs.bytes().rev(), found);
        }
    }

    fn end_rows(&mut self) {
        self.dump.end_row();
        self.swapped.end_row();
    }

    const fn all(&self) -> [&Reader; 6] {
        [&self.binary, &self.decimal, &self.hex, &self.octal, &self.dump, &self.swapped]
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

/// Is it a letter or a digit? Looked up, for every byte of a text is asked.
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
