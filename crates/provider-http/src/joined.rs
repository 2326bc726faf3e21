//! Characters that two frames of a stream share.
//!
//! In JSON, a character beyond U+FFFF may be two escapes, such as `\ud83d\udc4d`. An endpoint that counts UTF-16 units
//! may end one piece of a text with the first and begin the next piece with the second.

mod halves;

use std::collections::VecDeque;

use self::halves::{ESCAPE_BYTES, Text, ends_an_answer, first_halves, second_halves};
use crate::framing::{FrameError, Framing};

/// Maximum number of frames that wait for the second half of a character.
const MAX_WAITING: usize = 8;

/// The frames of a stream. A frame that ends a text with half of a character waits for the next piece of that text.
#[derive(Debug)]
pub(crate) struct JoinedFrames<F: Framing> {
    framing: F,
    /// The frames that are returned next.
    waiting: VecDeque<F::Frame>,
}

impl<F: Framing> JoinedFrames<F> {
    pub(crate) fn new() -> Self {
        Self { framing: F::default(), waiting: VecDeque::new() }
    }

    /// Adds a chunk of the body.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), FrameError> {
        self.framing.push(chunk)
    }

    /// Returns the next complete frame.
    pub(crate) fn next(&mut self) -> Result<Option<F::Frame>, FrameError> {
        loop {
            let waiting = self.waiting.make_contiguous();
            if !waiting.is_empty() && (join::<F>(waiting) || is_full::<F>(waiting)) {
                return Ok(self.waiting.pop_front());
            }
            let Some(frame) = self.framing.next()? else { return Ok(None) };
            self.waiting.push_back(frame);
        }
    }

    /// Returns the frames that the end of the body completes.
    pub(crate) fn rest(&mut self) -> Result<impl Iterator<Item = F::Frame> + use<F>, FrameError> {
        self.waiting.extend(self.framing.rest()?);
        let mut frames = Vec::from(std::mem::take(&mut self.waiting));
        for at in 0..frames.len() {
            join::<F>(&mut frames[at..]);
        }
        Ok(frames.into_iter())
    }
}

/// Returns whether no further frame is waited for: enough are waiting, or no piece of a text follows the last one. An
/// endpoint may keep the connection open after that.
fn is_full<F: Framing>(waiting: &mut [F::Frame]) -> bool {
    let last = waiting.last_mut().and_then(F::json);
    let is_last = last.is_none_or(|json| ends_an_answer(json));
    is_last || waiting.len() > MAX_WAITING
}

/// Moves the first halves of characters in the first frame to their second halves, and returns whether the frame waits
/// for no other.
fn join<F: Framing>(frames: &mut [F::Frame]) -> bool {
    let [frame, rest @ ..] = frames else { return true };
    let Some(json) = F::json(frame) else { return true };
    let texts: Vec<Text> = first_halves(json).into_iter().map(|half| half.text).collect();
    let mut is_joined = true;
    for text in texts {
        is_joined &= join_text::<F>(&text, json, rest);
    }
    is_joined
}

/// Joins the character that a text ends with; returns whether the next piece of the text was found.
fn join_text<F: Framing>(text: &Text, json: &mut String, rest: &mut [F::Frame]) -> bool {
    let Some(next) = rest.iter_mut().filter_map(F::json).find(|next| text.has_piece_in(next))
    else {
        return false;
    };
    let first = first_halves(json).into_iter().find(|half| half.text == *text);
    let second = second_halves(next).into_iter().find(|half| half.text == *text);
    if let (Some(first), Some(second)) = (first, second) {
        let escape: String = json.drain(first.at..first.at + ESCAPE_BYTES).collect();
        next.insert_str(second.at, &escape);
    }
    true
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
                &[r#"{"a":"x "}"#, r#"{"a":"\ud83d\udc4d y"}"#][..],
            ),
            (
                &[r#"{"a":"\uD83D","b":1}"#, r#"{"b":1,"a":"\uDC4D"}"#],
                &[r#"{"a":"","b":1}"#, r#"{"b":1,"a":"\uD83D\uDC4D"}"#],
            ),
            (
                &[r#"{"a":"\\\ud83d"}"#, r#"{"a":"\udc4d"}"#],
                &[r#"{"a":"\\"}"#, r#"{"a":"\ud83d\udc4d"}"#],
            ),
            // In two fields.
            (
                &[r#"{"a":"\ud83d","b":["\ud83e"]}"#, r#"{"b":["\udd14"],"a":"\udc4d"}"#],
                &[r#"{"a":"","b":[""]}"#, r#"{"b":["\ud83e\udd14"],"a":"\ud83d\udc4d"}"#],
            ),
            // With another event in between.
            (
                &[r#"{"a":"\ud83d"}"#, r#"{"type":"ping"}"#, r#"{"a":"\udc4d"}"#],
                &[r#"{"a":""}"#, r#"{"type":"ping"}"#, r#"{"a":"\ud83d\udc4d"}"#],
            ),
            // Two texts in turn.
            (
                &[
                    r#"{"index":0,"a":"\ud83d"}"#,
                    r#"{"index":1,"a":"\ud83e"}"#,
                    r#"{"index":0,"a":"\udc4d"}"#,
                    r#"{"index":1,"a":"\udd14"}"#,
                ],
                &[
                    r#"{"index":0,"a":""}"#,
                    r#"{"index":1,"a":""}"#,
                    r#"{"index":0,"a":"\ud83d\udc4d"}"#,
                    r#"{"index":1,"a":"\ud83e\udd14"}"#,
                ],
            ),
            (
                &[r#"{"a":"\ud83d"}"#, r#"{"a":"\udc4d\ud83d"}"#, r#"{"a":"\udc4d"}"#],
                &[r#"{"a":""}"#, r#"{"a":"\ud83d\udc4d"}"#, r#"{"a":"\ud83d\udc4d"}"#],
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
            [r#"{"a":"\ud83d"}"#, r#"{"b":"\udc4d"}"#],
            [r#"{"index":0,"a":"\ud83d"}"#, r#"{"index":1,"a":"\udc4d"}"#],
            [r#"{"a":["\ud83d",""]}"#, r#"{"a":["","\udc4d"]}"#],
        ] {
            assert_eq!(read(&lines), lines);
        }
        let apart = [r#"{"a":"\ud83d"}"#, r#"{"a":"x"}"#, r#"{"a":"\udc4d"}"#];
        assert_eq!(read(&apart), apart);
    }

    /// Spec: P7. The body need not end.
    #[test]
    fn frames_wait_for_nothing_behind_the_end() {
        for end in [
            r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#,
            r#"{"candidates":[{"content":{},"finishReason":"MAX_TOKENS"}]}"#,
            r#"{"type":"message_stop"}"#,
            r#"{"type":"response.incomplete","response":{}}"#,
            r#"{"stopReason":"max_tokens"}"#,
            r#"{"message":{"content":""},"done":true}"#,
            "[1]",
        ] {
            let mut frames = JoinedFrames::<JsonSplitter>::new();
            let half = r#"{"a":"\ud83d"}"#;
            frames.push(format!("{half}\n{end}\n").as_bytes()).unwrap();
            assert_eq!(frames.next().unwrap().as_deref(), Some(half), "{end}");
            assert_eq!(frames.next().unwrap().as_deref(), Some(end));
        }
        let mut frames = JoinedFrames::<JsonSplitter>::new();
        let going_on = r#"{"choices":[{"delta":{},"finish_reason":null}]}"#;
        frames.push(format!("{{\"a\":\"\\ud83d\"}}\n{going_on}\n").as_bytes()).unwrap();
        assert_eq!(frames.next().unwrap(), None);
    }

    /// Spec: P7
    #[test]
    fn frames_wait_for_a_few_others() {
        let mut frames = JoinedFrames::<JsonSplitter>::new();
        let lines = r#"{"a":"\ud83d"}"#.to_owned() + "\n" + &"{}\n".repeat(MAX_WAITING);
        frames.push(lines.as_bytes()).unwrap();
        assert_eq!(frames.next().unwrap().as_deref(), Some(r#"{"a":"\ud83d"}"#));
    }
}
