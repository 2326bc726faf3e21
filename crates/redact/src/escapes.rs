//! Sequences that encode other text: escapes of JSON and program text, percent-encoding, HTML entities, and control
//! sequences of a terminal.

use crate::colour::{self, Escape};

/// Named HTML entities for characters that occur in keys.
const ENTITIES: [(&[u8], u8); 6] = [
    (b"amp", b'&'),
    (b"lt", b'<'),
    (b"gt", b'>'),
    (b"quot", b'"'),
    (b"apos", b'\''),
    (b"sol", b'/'),
];

/// The longest entity between `&` and `;`.
const MAX_ENTITY: usize = 8;

/// Returns whether an escape may begin with this byte. It is a table, because every byte of a text is checked.
pub(crate) const fn is_special(byte: u8) -> bool {
    SPECIAL[byte as usize]
}

static SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut begins: &[u8] = b"\\%&\n\r\x1b\xc2";
    while let [byte, rest @ ..] = begins {
        special[*byte as usize] = true;
        begins = rest;
    }
    special
};

pub(crate) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Reads the escape at the start of a text.
pub(crate) fn escape(text: &[u8]) -> Escape {
    match text[0] {
        b'\\' => backslash(&text[1..]),
        b'%' => match hex(&text[1..], 2) {
            Ok(byte) => decode_code(byte, 3),
            Err(cut) => cut,
        },
        b'&' => entity(&text[1..]),
        b'\n' | b'\r' => Escape::Line(1),
        0x1b | 0xc2 => colour::sequence(text),
        _ => Escape::None,
    }
}

fn decode_code(code: u32, length: usize) -> Escape {
    match u8::try_from(code) {
        Ok(b'\n' | b'\r') => Escape::Line(length),
        Ok(byte) => Escape::Byte(byte, length),
        Err(_) => char::from_u32(code).map_or(Escape::None, |char| Escape::Char(char, length)),
    }
}

/// Decodes the number of a character like [`decode_code`], but 0x80 to 0xff are characters and no bytes.
fn decode_reference(code: u32, length: usize) -> Escape {
    match code {
        0x80..=0xff => char::from_u32(code).map_or(Escape::None, |char| Escape::Char(char, length)),
        _ => decode_code(code, length),
    }
}

/// Reads this many hexadecimal digits.
fn hex(text: &[u8], digits: usize) -> Result<u32, Escape> {
    let mut number = 0;
    for index in 0..digits {
        let Some(byte) = text.get(index) else { return Err(Escape::Cut) };
        let Some(digit) = char::from(*byte).to_digit(16) else { return Err(Escape::None) };
        number = number * 16 + digit;
    }
    Ok(number)
}

/// Reads escapes of JSON and of debug output of programs: `\x2f`, `\u{2f}`, `\057`.
fn backslash(text: &[u8]) -> Escape {
    let Some(byte) = text.first() else { return Escape::Cut };
    match byte {
        b'n' | b'r' | b'\n' | b'\r' => Escape::Line(2),
        b't' => Escape::Byte(b'\t', 2),
        b'b' => Escape::Byte(8, 2),
        b'f' => Escape::Byte(12, 2),
        b'"' | b'\'' | b'/' | b'\\' => Escape::Byte(*byte, 2),
        b'0'..=b'7' => octal(text),
        b'x' if text.get(1) != Some(&b'{') => {
            hex(&text[1..], 2).map_or_else(|cut| cut, |code| decode_code(code, 4))
        }
        b'u' | b'x' if text.get(1) == Some(&b'{') => {
            let digits =
                text[2..].iter().take(7).take_while(|byte| byte.is_ascii_hexdigit()).count();
            match text.get(2 + digits) {
                Some(b'}') => hex(&text[2..], digits)
                    .map_or_else(|cut| cut, |code| decode_reference(code, digits + 4)),
                None if digits < 7 => Escape::Cut,
                _ => Escape::None,
            }
        }
        b'u' => hex(&text[1..], 4).map_or_else(|cut| cut, |code| utf16(code, &text[5..])),
        _ => Escape::None,
    }
}

/// Reads up to three octal digits, as in C.
fn octal(text: &[u8]) -> Escape {
    let digits = text.iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    if digits < 3 && digits == text.len() {
        return Escape::Cut;
    }
    let number = text[..digits].iter().fold(0, |number, byte| number * 8 + u32::from(byte - b'0'));
    if number > 0xff { Escape::None } else { decode_code(number, digits + 1) }
}

/// Reads a character outside the first plane, which is written as two escapes.
fn utf16(code: u32, rest: &[u8]) -> Escape {
    if !(0xd800..0xdc00).contains(&code) {
        return decode_reference(code, 6);
    }
    if rest.len() < 2 {
        let may_go_on = rest.is_empty() || rest == b"\\";
        return if may_go_on { Escape::Cut } else { Escape::None };
    }
    if !rest.starts_with(b"\\u") {
        return Escape::None;
    }
    match hex(&rest[2..], 4) {
        Ok(low @ 0xdc00..=0xdfff) => {
            decode_reference(0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00), 12)
        }
        Ok(_) => Escape::None,
        Err(cut) => cut,
    }
}

fn entity(text: &[u8]) -> Escape {
    let head = &text[..text.len().min(MAX_ENTITY + 1)];
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'#';
    let length = head.iter().take_while(|byte| is_name(byte)).count();
    let name = &head[..length];
    match head.get(length) {
        Some(b';') => {}
        None if length <= MAX_ENTITY => return Escape::Cut,
        _ => return Escape::None,
    }
    if let Some((_, byte)) = ENTITIES.iter().find(|(entity, _)| *entity == name) {
        return Escape::Byte(*byte, length + 2);
    }
    let number = |digits: &[u8], radix| {
        let digits = std::str::from_utf8(digits).ok()?;
        u32::from_str_radix(digits, radix).ok()
    };
    let code = match name {
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16),
        [b'#', digits @ ..] => number(digits, 10),
        _ => None,
    };
    code.map_or(Escape::None, |code| decode_reference(code, length + 2))
}
