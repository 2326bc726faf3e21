//! Texts that arrive in pieces.

use backstop_redact::Redactor;
use proptest::prelude::*;

const KEY: &str = "held+secret/key=0123";

fn redactor() -> Redactor {
    Redactor::new().with_secret(KEY).with_secret("held+secret").with_secret("0123456789")
}

/// Spec: S9. Wherever a secret is cut, in two and in three.
#[test]
fn cut_secrets_are_held_back() {
    let text = format!("a {KEY} b {KEY}456789 c");
    let expected = redactor().redact_held(&text).into_owned();
    assert_eq!(expected, "a [redacted] b [redacted] c");
    for first in 0..text.len() {
        for second in first..text.len() {
            let mut stream = redactor().stream();
            let pieces = [&text[..first], &text[first..second], &text[second..]];
            let mut shown: String = pieces.iter().map(|piece| stream.push(piece)).collect();
            shown += &stream.finish();
            assert_eq!(shown, expected, "{pieces:?}");
        }
    }
}

/// Spec: S9
#[test]
fn nothing_else_is_held_back() {
    let mut stream = redactor().stream();
    assert_eq!(stream.push("The answer is "), "The answer is ");
    assert_eq!(stream.push("forty-two.\n"), "forty-two.\n");
    assert_eq!(stream.push("Is h"), "Is ");
    assert_eq!(stream.push("e"), "");
    assert_eq!(stream.push("re"), "here");
    assert_eq!(stream.finish(), "");
    assert_eq!(Redactor::new().stream().push("held+"), "held+");
}

/// Spec: S9. A secret at the very end, and one that does not come.
#[test]
fn the_end_releases_what_was_held_back() {
    let mut stream = redactor().stream();
    assert_eq!(stream.push("it is held+secret"), "it is ");
    assert_eq!(stream.finish(), "[redacted]");
    assert_eq!(stream.push("held"), "");
    assert_eq!(stream.finish(), "held");
    assert_eq!(stream.push("held"), "");
    stream.discard();
    assert_eq!(stream.push("+secret"), "+secret");
    assert!(!format!("{stream:?}").contains("secret/key"));
}

/// Endless white space is not a folded line, and is not kept; nor are colours, or both.
///
/// Spec: P7, S9
#[test]
fn held_back_text_is_bounded() {
    for unit in
        ["\n\n\n\n", "\u{1b}[0m", "\u{1b}]0;t", "\u{9b}1m", "\n\u{1b}[K", "\\n%0A", "\u{9b}"]
    {
        for head in ["held", "5", "a", ""] {
            let mut stream = redactor().stream();
            let mut held_back = head.len() - stream.push(head).len();
            for _ in 0..1_000 {
                held_back += unit.len();
                held_back -= stream.push(unit).len();
                assert!(held_back < 600, "{held_back} bytes of {head:?} and {unit:?}");
            }
        }
    }
}

/// Spec: S9
#[test]
fn colours_within_secrets_are_counted_together() {
    let (first, second) = KEY.split_at(4);
    let redactor = Redactor::new().with_secret(KEY);
    for (count, is_found) in [(1, true), (64, true), (65, false)] {
        let text = format!("{first}{}{second}", "\u{1b}[0m".repeat(count));
        let whole = redactor.redact_held(&text).into_owned();
        assert_eq!(whole == "[redacted]", is_found, "{count}");
        let mut stream = redactor.stream();
        let mut shown: String =
            text.chars().map(|char| stream.push(char.encode_utf8(&mut [0; 4]))).collect();
        shown += &stream.finish();
        assert_eq!(shown, whole);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Spec: S9
    #[test]
    fn pieces_say_what_the_whole_says(
        words in prop::collection::vec(prop::sample::select(vec![
            KEY, "held+secret", "/key=", "0123", "456789", "held", "\n", " ", "\\", "\\n", "%2", "B", "\u{1b}[0m", "\u{9b}", "\u{1b}]0;t",
            "%2B", "\\u002b", "secret", "aGVsZCtzZWNyZXQ", "hlbGQrc2VjcmV0", "é", "&#43;", "\\\\", "u002f",
        ]), 0..24),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let text = words.concat();
        let expected = redactor().redact_held(&text).into_owned();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.retain(|place| text.is_char_boundary(*place));
        places.sort_unstable();
        let mut stream = redactor().stream();
        let (mut shown, mut from) = (String::new(), 0);
        for place in places {
            shown += &stream.push(&text[from..place]);
            from = place;
        }
        shown += &stream.push(&text[from..]);
        shown += &stream.finish();
        prop_assert_eq!(shown, expected);
    }
}
