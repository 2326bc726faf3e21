//! Characters that two frames of a stream share.
//!
//! In JSON, a character beyond U+FFFF may be two escapes, such as `\ud83d\udc4d`. An endpoint that counts UTF-16 units
//! may end one piece of a text with the first and begin the next piece with the second.

use crate::framing::{FrameError, Framing};

/// Length of an escape such as `\ud83d`, in bytes.
const ESCAPE_BYTES: usize = 6;

/// The frames of a stream. A frame that ends a text with half of a character waits for the next frame.
#[derive(Debug)]
pub(crate) struct JoinedFrames<F: Framing> {
    framing: F,
    /// The frame that is returned next.
    waiting: Option<F::Frame>,
}

impl<F: Framing> JoinedFrames<F> {
    pub(crate) fn new() -> Self {
        Self { framing: F::default(), waiting: None }
    }

    /// Adds a chunk of the body.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), FrameError> {
        self.framing.push(chunk)
    }

    /// Returns the next complete frame.
    pub(crate) fn next(&mut self) -> Result<Option<F::Frame>, FrameError> {
        let Some(mut frame) =
            self.waiting.take().map_or_else(|| self.framing.next(), |it| Ok(Some(it)))?
        else {
            return Ok(None);
        };
        if F::json(&mut frame).is_some_and(|json| first_half(json).is_some()) {
            let Some(mut next) = self.framing.next()? else {
                self.waiting = Some(frame);
                return Ok(None);
            };
            join::<F>(&mut frame, &mut next);
            self.waiting = Some(next);
        }
        Ok(Some(frame))
    }

    /// Returns the frames that the end of the body completes.
    pub(crate) fn rest(&mut self) -> Result<impl Iterator<Item = F::Frame> + use<F>, FrameError> {
        let mut waiting = self.waiting.take();
        let mut last = self.framing.rest()?;
        if let (Some(waiting), Some(last)) = (&mut waiting, &mut last) {
            join::<F>(waiting, last);
        }
        Ok(waiting.into_iter().chain(last))
    }
}

/// Moves the first half of a character to its second half, if the next frame has it.
fn join<F: Framing>(frame: &mut F::Frame, next: &mut F::Frame) {
    let (Some(json), Some(next)) = (F::json(frame), F::json(next)) else { return };
    let (Some(first), Some(second)) = (first_half(json), second_half(next)) else { return };
    let escape: String = json.drain(first..first + ESCAPE_BYTES).collect();
    next.insert_str(second, &escape);
}

/// Returns the position of the first half of a character that ends a string.
fn first_half(json: &str) -> Option<usize> {
    let ends_a_string = |at: &usize| {
        let backslashes = json[..*at].bytes().rev().take_while(|byte| *byte == b'\\').count();
        backslashes % 2 == 0 && json.as_bytes().get(at + ESCAPE_BYTES) == Some(&b'"')
    };
    halves(json, "89abAB").filter(ends_a_string).last()
}

/// Returns the position of the second half of a character that begins a string.
fn second_half(json: &str) -> Option<usize> {
    halves(json, "cdefCDEF").find(|at| {
        let before = json[..*at].as_bytes();
        before.ends_with(b"\"") && !before.ends_with(b"\\\"")
    })
}

/// Returns the positions of `\ud…` whose second digit is one of these.
fn halves<'j>(json: &'j str, second_digits: &'static str) -> impl Iterator<Item = usize> + 'j {
    json.match_indices("\\u").map(|(at, _)| at).filter(move |at| {
        let digits = json.as_bytes().get(at + 2..at + ESCAPE_BYTES).unwrap_or_default();
        matches!(digits, [b'd' | b'D', second, third, fourth]
            if second_digits.as_bytes().contains(second)
                && third.is_ascii_hexdigit()
                && fourth.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JsonSplitter;

    /// Reads these lines, with the chunks split everywhere.
    fn read(lines: &[&str]) -> Vec<String> {
        let body = lines.join("\n") + "\n";
        let read = |chunks: &[&str]| {
            let (mut frames, mut read) = (JoinedFrames::<JsonSplitter>::new(), Vec::new());
            for chunk in chunks {
                frames.push(chunk.as_bytes()).unwrap();
                while let Some(frame) = frames.next().unwrap() {
                    read.push(frame);
                }
            }
            read.extend(frames.rest().unwrap());
            read
        };
        let whole = read(&[&body]);
        for cut in (0..body.len()).filter(|cut| body.is_char_boundary(*cut)) {
            let (first, rest) = body.split_at(cut);
            assert_eq!(read(&[first, rest]), whole, "cut at {cut}");
        }
        whole
    }

    /// Spec: P7
    #[test]
    fn halves_of_a_character_are_joined() {
        for (lines, expected) in [
            (
                &[r#"{"a":"x \ud83d"}"#, r#"{"a":"\udc4d y"}"#][..],
                [r#"{"a":"x "}"#, r#"{"a":"\ud83d\udc4d y"}"#],
            ),
            (
                &[r#"{"a":"\uD83D","b":1}"#, r#"{"b":1,"a":"\uDC4D"}"#],
                [r#"{"a":"","b":1}"#, r#"{"b":1,"a":"\uD83D\uDC4D"}"#],
            ),
            (
                &[r#"{"a":"\\\ud83d"}"#, r#"{"a":"\udc4d"}"#],
                [r#"{"a":"\\"}"#, r#"{"a":"\ud83d\udc4d"}"#],
            ),
        ] {
            assert_eq!(read(lines), expected);
        }
    }

    /// Spec: P7
    #[test]
    fn other_halves_stay_as_they_are() {
        for lines in [
            [r#"{"a":"\ud83d"}"#, r#"{"a":"x\udc4d"}"#],
            [r#"{"a":"\ud83dx"}"#, r#"{"a":"\udc4d"}"#],
            [r#"{"a":"\\ud83d"}"#, r#"{"a":"\udc4d"}"#],
            [r#"{"a":"\ud83d"}"#, r#"{"a":"\"\udc4d"}"#],
            [r#"{"a":"\ud83d\udc4d"}"#, r#"{"a":"\udc4d"}"#],
            [r#"{"a":"\ud83d"}"#, r#"{"a":"\ud83d"}"#],
            [r#"{"a":"\ud8"}"#, r#"{"a":"\udc4d"}"#],
        ] {
            assert_eq!(read(&lines), lines);
        }
    }

    /// Spec: P7
    #[test]
    fn three_frames_share_two_characters() {
        let lines = [r#"{"a":"\ud83d"}"#, r#"{"a":"\udc4d\ud83d"}"#, r#"{"a":"\udc4d"}"#];
        assert_eq!(
            read(&lines),
            [r#"{"a":""}"#, r#"{"a":"\ud83d\udc4d"}"#, r#"{"a":"\ud83d\udc4d"}"#]
        );
    }
}
