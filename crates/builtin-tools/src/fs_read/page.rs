/// Returns the beginning of the character that `position` is inside of; otherwise `position`.
pub(super) fn boundary(bytes: &[u8], position: usize) -> usize {
    let mut begin = 0;
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        if position < begin + valid.len() {
            return begin + valid.floor_char_boundary(position - begin);
        }
        begin += valid.len() + chunk.invalid().len();
        if position < begin {
            break;
        }
    }
    position.min(bytes.len())
}

/// Returns the text at the beginning of `bytes`, with the number of bytes that it was made from. The text takes at most
/// `limit` bytes, and at most `room` bytes as JSON, but has at least one character. Bytes that are not text become
/// U+FFFD.
pub(super) fn text(bytes: &[u8], limit: usize, room: usize) -> (String, usize) {
    let (mut text, mut read, mut used) = (String::new(), 0, 0_usize);
    for (character, length) in characters(bytes) {
        used = used.saturating_add(json_length(character));
        if read > 0 && (read + length > limit || used > room) {
            break;
        }
        text.push(character);
        read += length;
    }
    (text, read)
}

/// Returns the characters, each with the number of bytes that it was made from.
fn characters(bytes: &[u8]) -> impl Iterator<Item = (char, usize)> {
    bytes.utf8_chunks().flat_map(|chunk| {
        let invalid = chunk.invalid().len();
        let invalid = (invalid > 0).then_some((char::REPLACEMENT_CHARACTER, invalid));
        chunk.valid().chars().map(|c| (c, c.len_utf8())).chain(invalid)
    })
}

fn json_length(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}
