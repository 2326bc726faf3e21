//! Held secrets that are printed byte by byte.

use std::collections::BTreeMap;
use std::sync::Mutex;

use backstop_redact::Redactor;
use proptest::prelude::*;

const SECRETS: [&str; 4] = [
    "held-secret-key",
    "canary+Zm9vYmFy/key=0123456789==-and-so-on-to-three-rows",
    "pässwört-ñ-€-𝄞",
    "correct horse battery staple",
];

/// Clones share what is searched for.
fn redactor(secret: &str) -> Redactor {
    static MADE: Mutex<BTreeMap<String, Redactor>> = Mutex::new(BTreeMap::new());
    let made = || {
        let redactor = Redactor::new().with_secret(secret);
        let _ = redactor.redact_held("");
        redactor
    };
    MADE.lock().unwrap().entry(secret.to_owned()).or_insert_with(made).clone()
}

/// Is nothing left of a list but what stands around it, in whole and in pieces?
#[track_caller]
fn gone(secret: &str, list: &str) {
    let framed = format!("before <{list}> after");
    let redacted = redactor(secret).redact_held(&framed).into_owned();
    assert!(redacted.contains("[redacted]"), "{secret} as {list}");
    let around = redacted.replace("[redacted]", "");
    assert!(around.chars().count() <= "before <> after".len() + 12, "{list} became {redacted}");
    in_pieces(secret, &framed, &redacted);
}

#[track_caller]
fn in_pieces(secret: &str, text: &str, expected: &str) {
    for (index, _) in text.char_indices().skip(1).step_by(5) {
        let mut stream = redactor(secret).stream();
        let (first, second) = text.split_at(index);
        let shown = [stream.push(first), stream.push(second), stream.finish()].concat();
        assert_eq!(shown, expected, "{text}, cut at {index}");
    }
}

fn joined(secret: &str, between: &str, print: impl FnMut(u8) -> String) -> String {
    secret.bytes().map(print).collect::<Vec<_>>().join(between)
}

/// Spec: E10, S9
#[test]
fn hexadecimal_lists_go() {
    for secret in SECRETS {
        for between in [":", " ", "-", ", ", ",", "\n", "\\n", "_", ".", " : ", ",\n      "] {
            gone(secret, &joined(secret, between, |byte| format!("{byte:02x}")));
            gone(secret, &joined(secret, between, |byte| format!("{byte:02X}")));
            gone(secret, &joined(secret, between, |byte| format!("{byte:x}")));
        }
        for between in [", ", " ", ""] {
            gone(secret, &joined(secret, between, |byte| format!("\\x{byte:02x}")));
            gone(secret, &joined(secret, between, |byte| format!("\\x{{{byte:x}}}")));
        }
        let prefixes = ["0x", "0X", "x", "", "U+00", "u00"].map(|prefix| (prefix, ""));
        for (prefix, suffix) in prefixes.into_iter().chain([("0x", "u8"), ("", "h")]) {
            if prefix.ends_with("00") && !secret.is_ascii() {
                continue;
            }
            gone(secret, &joined(secret, ", ", |byte| format!("{prefix}{byte:02X}{suffix}")));
        }
        gone(secret, &joined(secret, " + ", |byte| format!("chr(0x{byte:x})")));
        let digits: Vec<u8> = joined(secret, "", |byte| format!("{byte:02x}")).into_bytes();
        for group in [4, 8, 32] {
            let groups: Vec<&str> =
                digits.chunks(group).map(|group| str::from_utf8(group).unwrap()).collect();
            gone(secret, &groups.join(" "));
            gone(secret, &groups.join("\n"));
        }
    }
}

/// Spec: E10, S9
#[test]
fn octal_decimal_and_binary_lists_go() {
    for secret in SECRETS {
        gone(secret, &joined(secret, "", |byte| format!("\\{byte:o}")));
        gone(secret, &joined(secret, "", |byte| format!("\\{byte:03o}")));
        gone(secret, &joined(secret, "", |byte| format!("\\\\{byte:03o}")));
        gone(secret, &joined(secret, "", |byte| format!("\\0{byte:03o}")));
        gone(secret, &joined(secret, " ", |byte| format!("{byte:03o}")));
        gone(secret, &joined(secret, ", ", |byte| format!("0o{byte:o}")));
        for between in [", ", ",", " ", "\n", "\\n", ",\n        ", ":", ";", "."] {
            gone(secret, &joined(secret, between, |byte| byte.to_string()));
            gone(secret, &joined(secret, between, |byte| format!("{byte:03}")));
        }
        gone(secret, &joined(secret, ", ", |byte| format!("{byte}u8")));
        gone(secret, &joined(secret, "),char(", |byte| byte.to_string()));
        gone(secret, &joined(secret, " ", |byte| format!("{byte:08b}")));
        gone(secret, &format!("{:?}", secret.as_bytes()));
        gone(secret, &format!("{:#?}", secret.as_bytes()));
        let mut index = 0;
        let indexed = joined(secret, ",", |byte| {
            index += 1;
            format!("\"{}\":{byte}", index - 1)
        });
        gone(secret, &indexed);
    }
}

/// Prints rows of 16 bytes, as the usual tools do.
fn dump(secret: &str, row: impl Fn(usize, &[u8]) -> String) -> String {
    let text = format!("ab\ncd {secret}\n");
    let rows = text.as_bytes().chunks(16).enumerate();
    rows.map(|(index, bytes)| row(index * 16, bytes)).collect()
}

fn shown(bytes: &[u8]) -> String {
    let is_shown = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    bytes.iter().map(|byte| if is_shown(byte) { char::from(*byte) } else { '.' }).collect()
}

/// Spec: E10, S9
#[test]
fn dumps_go_across_their_rows() {
    let print = |bytes: &[u8], size: usize, print: &dyn Fn(&[u8]) -> String| {
        bytes.chunks(size).map(print).collect::<Vec<_>>().join(" ")
    };
    let pairs = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let swapped = |bytes: &[u8]| bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
    let octal = |bytes: &[u8]| format!("{:03o}", bytes[0]);
    for secret in SECRETS {
        for text in [
            dump(secret, |at, row| {
                format!("{at:08x}: {:<39}  {}\n", print(row, 2, &pairs), shown(row))
            }),
            dump(secret, |at, row| {
                format!("{at:08x}  {:<48}  |{}|\n", print(row, 1, &pairs), shown(row))
            }),
            dump(secret, |at, row| format!("{at:07x} {}\n", print(row, 2, &swapped))),
            dump(secret, |at, row| format!("{at:07o} {}\n", print(row, 1, &octal))),
            dump(secret, |at, row| format!("{at:07o} {}\n", print(row, 1, &pairs))),
        ] {
            let redacted = redactor(secret).redact_held(&text).into_owned();
            assert!(redacted.contains("[redacted]"), "{text}");
            // The row before the secret's and the text column of the last one stay.
            assert!(redacted.lines().count() <= 2, "{text}\nbecame\n{redacted}");
            in_pieces(secret, &text, &redacted);
        }
    }
}

/// Spec: S3, S9. A list of numbers is a value; its mark is one too.
#[test]
fn json_stays_json_where_a_list_goes() {
    let secret = "held-secret-key";
    let bytes = secret.as_bytes();
    let texts: Vec<String> = bytes.iter().map(|byte| format!("{byte:x}")).collect();
    for value in [
        serde_json::json!({ "key": bytes, "then": [1, 2] }),
        serde_json::json!([[bytes], { "a": bytes }, "bytes"]),
        serde_json::json!({ "said \"it\"": format!("it is {bytes:?}"), "n": 1 }),
        serde_json::json!({ "key": texts }),
    ] {
        for text in [value.to_string(), format!("{value:#}")] {
            let redacted = redactor(secret).redact_held(&text).into_owned();
            assert!(redacted.contains("[redacted]"), "{text}");
            let read = serde_json::from_str::<serde_json::Value>(&redacted);
            assert!(read.is_ok(), "{text}\nbecame\n{redacted}");
            in_pieces(secret, &text, &redacted);
        }
    }
}

/// Spec: S9
#[test]
fn lists_of_other_bytes_stay() {
    for text in [
        "[104, 101, 108, 100, 45, 115, 101, 99, 114, 101]",
        "68:65:6c:64:2d:73:65:63:72:65",
        "10.0.104.101:108, 2026-01-01 10:45:11, id 00000010",
        "68 is what 65 was, 6c and 64 are words of their own, and so is 2d, 73, 65, 63, 72, 65, 74",
        "0000000 150 145 154",
    ] {
        assert_eq!(redactor("held-secret-key").redact_held(text), text);
        in_pieces("held-secret-key", text, text);
    }
}

/// What is held back of a list that comes to nothing is not more than a secret is long.
///
/// Spec: S9
#[test]
fn held_back_list_is_bounded() {
    let mut stream = redactor("held-secret-key").stream();
    let mut held_back = 0;
    for piece in ["68", "65", " ", ":", "held", "00000010", "\n", "68656c64"].repeat(200) {
        held_back += piece.len();
        held_back -= stream.push(piece).len();
        assert!(held_back < 1_000, "{held_back}");
    }
    let digits = "68".repeat(2_000);
    let shown: usize = digits.chars().map(|digit| stream.push(&digit.to_string()).len()).sum();
    assert!(shown > 3_500, "{shown}");
}

/// Spec: E10, S9
#[test]
fn pieces_of_folded_lists_go_too() {
    let list = "6865 6c64 2d73 6563 7265 742d 6b65 79";
    let dump =
        "00000000: 6161 6161 6161 6161 6161 6865 6c64 2d73  aahe\n00000010: 6563 7265 742d 6b65 79";
    for text in [
        // What stands behind a fold may belong to the last number.
        format!("{list} \\n00000000: 6161"),
        format!("{list}\nh"),
        // What stands before one makes the first number a word.
        format!("zz\n{list}\nh"),
        format!("u8\n{list}\\150"),
        // The head of a row says what the row is.
        format!("zz\n{dump}\nx"),
    ] {
        let secret = SECRETS[0];
        let whole = redactor(secret).redact_held(&text).into_owned();
        assert!(whole.contains("[redacted]"), "{text}");
        for at in 0..=text.len() {
            let mut stream = redactor(secret).stream();
            let (first, second) = text.split_at(at);
            let shown = [stream.push(first), stream.push(second), stream.finish()].concat();
            assert_eq!(shown, whole, "{text}, cut at {at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Spec: S9
    #[test]
    fn pieces_of_lists_say_what_the_whole_says(
        words in prop::collection::vec(prop::sample::select(vec![
            "68 65 6c 64 ", "2d 73 65 63 72 65 74 ", "2d,6b,65,79", "104, 101, 108, 100, ", "45, 115, 101, ",
            "99, 114, 101, 116, 45, 107, 101, 121", "68", "65", "6c", "\n", " ", "\\", "\\n", "x", "0x", "u8",
            "00000010: ", "  |he..|", "zz", "held-", "secret-key", "\"", "[", "{\"a\":", "h", "\\150",
            "6865 6c64 2d73 6563 7265 742d 6b65 79", "00000000: 6161 6161 6161 6161 6161 6865 6c64 2d73  aahe\n",
            "00000010: 6563 7265 742d 6b65 79",
        ]), 0..16),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let text = words.concat();
        let redactor = redactor("held-secret-key");
        let expected = redactor.redact_held(&text).into_owned();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.sort_unstable();
        let mut stream = redactor.stream();
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
