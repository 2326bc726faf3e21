//! Words that may be numbers.

use std::ops::RangeInclusive;

/// A longer number is no element of a list.
const MAX_NUMBER: usize = 96;
/// A shorter number at the head of a row is no offset.
const MIN_OFFSET_DIGITS: usize = 6;

const PREFIXES: [&[u8]; 9] = [b"0x", b"0X", b"0o", b"0O", b"0b", b"0B", b"x", b"X", b"u"];

/// What a number may begin with, and end with.
static BEGINS: [bool; 256] = hex_digits_and(b"uxX");
static ENDS: [bool; 256] = hex_digits_and(b"hHuUL");

const fn hex_digits_and(mut others: &[u8]) -> [bool; 256] {
    let mut these = [false; 256];
    let mut digits: &[u8] = b"0123456789abcdefABCDEF";
    while let [byte, rest @ ..] = digits {
        these[*byte as usize] = true;
        digits = rest;
    }
    while let [byte, rest @ ..] = others {
        these[*byte as usize] = true;
        others = rest;
    }
    these
}

/// A word that may be a number: digits, with what says how they are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number<'t> {
    word: &'t [u8],
    /// Hexadecimal ones, without what stands before and behind them.
    digits: &'t [u8],
    form: NumberForm,
    /// Is there no suffix?
    is_bare: bool,
}

/// What stands before the digits.
#[derive(Debug, Clone, Copy)]
enum NumberForm {
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
    pub(super) fn of(word: &'t [u8]) -> Option<Self> {
        // Most words are told by their ends.
        let ([first, ..], [.., last]) = (word, word) else { return None };
        if !BEGINS[usize::from(*first)] || !ENDS[usize::from(*last)] {
            return None;
        }
        let (form, rest) = match word {
            [b'0', b'x' | b'X', rest @ ..] | [b'x' | b'X', rest @ ..] => (NumberForm::Hex, rest),
            [b'u', rest @ ..] => (NumberForm::CodeUnit, rest),
            [b'0', b'o' | b'O', rest @ ..] => (NumberForm::Octal, rest),
            _ => (NumberForm::Plain, word),
        };
        let length = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, suffix) = rest.split_at(length);
        let is_number = length > 0 && word.len() <= MAX_NUMBER && is_suffix(suffix);
        is_number.then_some(Self { word, digits, form, is_bare: suffix.is_empty() })
    }

    /// Is this the offset at the head of a row of a dump?
    pub(super) fn is_offset(self) -> bool {
        let digits = self.word.strip_prefix(b"0x").unwrap_or(self.word);
        (MIN_OFFSET_DIGITS..=16).contains(&digits.len()) && digits == self.digits
    }

    pub(super) fn binary(self) -> Option<u8> {
        let is_prefixed = matches!(self.digits, [b'0', b'b' | b'B', ..]);
        let digits = if is_prefixed { &self.digits[2..] } else { self.digits };
        matches!(self.form, NumberForm::Plain).then(|| small(digits, 2, 7..=8))?
    }

    pub(super) fn decimal(self) -> Option<u8> {
        matches!(self.form, NumberForm::Plain).then(|| small(self.digits, 10, 1..=3))?
    }

    pub(super) fn octal(self) -> Option<u8> {
        matches!(self.form, NumberForm::Plain | NumberForm::Octal)
            .then(|| small(self.digits, 8, 1..=4))?
    }

    /// Reads one digit, or pairs of digits: one byte, or several as in `6865 6c64`.
    pub(super) fn hex(self) -> Option<Pairs<'t>> {
        let length = self.digits.len();
        let is_paired = length == 1 || length.is_multiple_of(2);
        let is_hex = match self.form {
            NumberForm::CodeUnit => length >= 4,
            NumberForm::Hex | NumberForm::Plain => true,
            NumberForm::Octal => false,
        };
        (is_paired && is_hex).then_some(Pairs(self.digits))
    }

    /// Reads the bytes of a row of a dump.
    pub(super) fn dumped(self) -> Option<Pairs<'t>> {
        let is_plain = self.is_bare && matches!(self.form, NumberForm::Plain);
        (is_plain && matches!(self.digits.len(), 2 | 4)).then_some(Pairs(self.digits))
    }
}

/// Pairs of hexadecimal digits, or one digit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pairs<'t>(&'t [u8]);

impl<'t> Pairs<'t> {
    pub(super) fn bytes(self) -> impl DoubleEndedIterator<Item = u8> + ExactSizeIterator + Clone {
        let digit = |byte: &u8| match byte {
            b'0'..=b'9' => byte - b'0',
            _ => (byte | 0x20) - b'a' + 10,
        };
        let byte_of = move |pair: &'t [u8]| pair.iter().fold(0, |it, byte| it << 4 | digit(byte));
        self.0.chunks(2).map(byte_of)
    }
}

/// Is this the beginning of a number, of whatever reading?
pub(super) fn may_be_number(word: &[u8]) -> bool {
    let is_begun = |rest: &[u8]| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        is_suffix(&rest[digits..]) || &rest[digits..] == b"i"
    };
    word.len() <= MAX_NUMBER
        && (is_begun(word)
            || PREFIXES.iter().any(|prefix| word.strip_prefix(*prefix).is_some_and(is_begun)))
}

/// May this stand behind the digits of a number, as in `68h` and `104u8`?
const fn is_suffix(rest: &[u8]) -> bool {
    matches!(rest, [] | [b'h' | b'H' | b'u' | b'U' | b'L'] | [b'u' | b'U' | b'i', b'8'])
}

/// Reads a number of one byte.
fn small(digits: &[u8], radix: u32, lengths: RangeInclusive<usize>) -> Option<u8> {
    if !lengths.contains(&digits.len()) {
        return None;
    }
    let number = digits
        .iter()
        .try_fold(0, |number, byte| Some(number * radix + char::from(*byte).to_digit(radix)?))?;
    u8::try_from(number).ok()
}
