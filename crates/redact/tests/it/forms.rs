//! The written forms of a secret of the process.

use backstop_redact::Redactor;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;

/// Characters that encodings change: quotes, slashes, signs, blanks, a backslash, letters outside of ASCII.
const SECRETS: [&str; 6] = [
    "held-secret-key",
    "canary+Zm9vYmFy/key=0123456789==",
    r#"q"uo\te/d <k&y> 'a'"#,
    "pässwört-ñ-€-𝄞",
    "ab%41cd%2Fef\\nghi",
    "correct horse battery staple",
];

#[track_caller]
fn check_gone(secret: &str, text: &str) {
    let redactor = Redactor::new().with_secret(secret);
    let framed = format!("before {text} after");
    for redacted in [redactor.redact_held(&framed), redactor.redact(&framed)] {
        assert_eq!(redacted, "before [redacted] after", "{secret} as {text}");
    }
    for (index, _) in framed.char_indices().skip(1).step_by(3) {
        let mut stream = redactor.stream();
        let (first, second) = framed.split_at(index);
        let shown = [stream.push(first), stream.push(second), stream.finish()].concat();
        assert_eq!(shown, "before [redacted] after", "{secret} as {text}, cut at {index}");
    }
}

fn json(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Every character as a JSON escape.
fn escape_json(text: &str, upper: bool) -> String {
    let unit = |unit: u16| if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
    text.encode_utf16().map(unit).collect()
}

/// Spec: E10, S9
#[test]
fn escaped_secrets_go() {
    for secret in SECRETS {
        check_gone(secret, secret);
        check_gone(secret, &json(secret));
        check_gone(secret, &json(&json(secret)));
        check_gone(secret, &json(&json(&json(secret))));
        check_gone(secret, &json(secret).replace('/', r"\/"));
        check_gone(secret, &escape_json(secret, false));
        check_gone(secret, &escape_json(secret, true));
        check_gone(secret, &json(&escape_json(secret, false)));
        let debug = format!("{secret:?}");
        check_gone(secret, &debug[1..debug.len() - 1]);
        let html = secret.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
        check_gone(secret, &html.replace('\'', "&#39;").replace('/', "&#x2F;"));
    }
}

fn with_lower_case_digits(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |all, part| all + "%" + &part[..2].to_lowercase() + &part[2..])
}

/// Spec: E10, S9
#[test]
fn percent_encoded_secrets_go() {
    const SOME: &AsciiSet =
        &percent_encoding::CONTROLS.add(b'/').add(b'+').add(b'%').add(b'"').add(b'\\').add(b' ');
    for secret in SECRETS {
        for set in [NON_ALPHANUMERIC, SOME] {
            let encoded = utf8_percent_encode(secret, set).to_string();
            check_gone(secret, &encoded);
            check_gone(secret, &with_lower_case_digits(&encoded));
            check_gone(secret, &utf8_percent_encode(&encoded, set).to_string());
        }
        let all: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
        check_gone(secret, &all);
        check_gone(secret, &all.to_lowercase());
    }
    check_gone("correct horse battery", "correct+horse+battery");
}

/// Spec: E10, S9
#[test]
fn base64_of_secrets_goes() {
    for secret in SECRETS {
        let redactor = Redactor::new().with_secret(secret);
        for before in ["", "a", "ab", "user:", "{\"key\":\""] {
            for behind in ["", "x", "yz", "\"}"] {
                for engine in [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD] {
                    let encoded = engine.encode(format!("{before}{secret}{behind}"));
                    let folded: Vec<&str> = (0..encoded.len())
                        .step_by(11)
                        .map(|at| &encoded[at..encoded.len().min(at + 11)])
                        .collect();
                    for text in [
                        encoded.clone(),
                        encoded.replace('/', r"\/"),
                        folded.join("\n"),
                        folded.join("\\n"),
                    ] {
                        let redacted = redactor.redact_held(&text);
                        assert!(redacted.contains("[redacted]"), "{secret} in {text}");
                        // The rest contains no three characters of the secret.
                        let left: usize = redacted.split("[redacted]").map(str::len).sum();
                        let around = (before.len() + behind.len()) * 4 / 3 + 14;
                        assert!(left <= around, "{redacted}");
                    }
                }
            }
        }
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        check_gone(secret, &hex);
        check_gone(secret, &hex.to_uppercase());
    }
}

/// Spec: E10, S9
#[test]
fn folded_secrets_go() {
    for secret in SECRETS {
        let chars: Vec<char> = secret.chars().collect();
        for fold in ["\n", "\r\n", "\n    ", " \n", "\\n", "\\r\\n\\t", "\\\n", "%0A", "\n\n"] {
            for width in [1, 3, 7] {
                let lines: Vec<String> =
                    chars.chunks(width).map(|line| line.iter().collect()).collect();
                // A backslash before the end of a line is part of the fold, not of the secret.
                if lines.iter().all(|line| !line.ends_with('\\')) {
                    check_gone(secret, &lines.join(fold));
                }
            }
        }
        check_gone(secret, &secret.replacen(' ', "\n", 1));
        check_gone(secret, &secret.replace(' ', "\n"));
    }
}

/// Spec: E10, S9
#[test]
fn overlapping_secrets_leave_no_tail() {
    let redactor = Redactor::new()
        .with_secret("secret-one")
        .with_secret("secret-one-and-more")
        .with_secret("and-more-of-it")
        .with_secret("aaaaaaaa");
    for (text, expected) in [
        ("a secret-one b", "a [redacted] b"),
        ("a secret-one-and-more b", "a [redacted] b"),
        ("a secret-one-and-more-of-it b", "a [redacted] b"),
        ("a secret-one-and-mor b", "a [redacted]-and-mor b"),
        ("xsecret-onesecret-onex", "x[redacted][redacted]x"),
        ("x aaaaaaaaaaaaaaa x", "x [redacted] x"),
        ("secret-onesecret-one-and-moreaaaaaaaab", "[redacted][redacted][redacted]b"),
    ] {
        assert_eq!(redactor.redact_held(text), expected);
        for size in 1..text.len() {
            let mut stream = redactor.stream();
            let pieces =
                text.as_bytes().chunks(size).map(|piece| std::str::from_utf8(piece).unwrap());
            let mut shown: String = pieces.map(|piece| stream.push(piece)).collect();
            shown += &stream.finish();
            assert_eq!(shown, expected, "{text} by {size}");
        }
    }
}

/// Spec: S9. Half an escape would make valid JSON invalid.
#[test]
fn escapes_are_not_cut_by_held_secrets() {
    let redactor =
        Redactor::new().with_secret("n8abcdefg").with_secret(r"qwertzui\").with_secret("000a1234");
    for text in [
        r#""\n8abcdefg""#,
        r#""\\n8abcdefg""#,
        r#""qwertzui\"x""#,
        r#""qwertzui\\""#,
        r#""\u000a1234""#,
    ] {
        let redacted = redactor.redact_held(text);
        assert!(serde_json::from_str::<String>(&redacted).is_ok(), "{text} became {redacted}");
        assert!(redacted.contains("[redacted]"), "{text}");
    }
}

#[test]
fn held_secrets_go_wherever_they_stand() {
    let redactor = Redactor::new().with_secret("plain-but-secret").with_secret("short");
    assert_eq!(redactor.redact("xplain-but-secretx short"), "x[redacted]x short");
    assert_eq!(redactor.redact_held("a plain-but-secret"), "a [redacted]");
    assert!(!format!("{redactor:?}").contains("plain"));
}

/// A shown error has no colours, so a key between them would be whole again.
///
/// Spec: S9, E10
#[test]
fn colours_within_secrets_hide_none() {
    let colours =
        ["\u{1b}[31m", "\u{1b}[m\u{1b}[K", "\u{9b}1m", "\u{1b}]0;x\u{7}", "\u{1b}(B", "\u{1b}7"];
    for colour in colours {
        for secret in ["held-secret-key", "canary+Zm9vYmFy/key=0123456789=="] {
            let (first, second) = secret.split_at(6);
            check_gone(secret, &format!("{first}{colour}{second}"));
        }
        let redactor = Redactor::new();
        let token = format!("ghp_{colour}{}", "a1B2".repeat(9));
        let redacted = redactor.redact(&token);
        assert_eq!(redacted, "[redacted]", "{token:?}");
        let setting = format!("{colour}DB_PASS{colour}=hunter22{colour} ok");
        let redacted = redactor.redact(&setting);
        assert!(!redacted.contains("hunter22") && redacted.ends_with(" ok"), "{redacted:?}");
    }
    let plain = "\u{1b}[1mnothing\u{1b}[0m \u{1b}";
    assert_eq!(Redactor::new().with_secret("held-secret-key").redact(plain), plain);
}

/// Text may contain every character, including those of private planes.
///
/// Spec: S9
#[test]
fn bytes_around_secrets_stay_as_they_are() {
    let redactor = Redactor::new().with_secret("held-secret-key");
    let private = "\u{10ff00}\u{10ff7f}\u{10ffff}";
    for (before, behind) in [(&b"\xff"[..], &b"\x80\xfe"[..]), (b"", b"\xc3"), (b"\xe4\xb8", b"")] {
        let with = |secret: &str| {
            [before, private.as_bytes(), secret.as_bytes(), private.as_bytes(), behind].concat()
        };
        assert_eq!(&*redactor.redact_bytes(&with("held-secret-key")), with("[redacted]"));
        assert_eq!(&*redactor.redact_bytes(&with("no secret")), with("no secret"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Sequences that are ended early, nested and cut off, next to characters of every length.
    ///
    /// Spec: S9
    #[test]
    fn no_text_is_cut_within_a_character(
        words in prop::collection::vec(prop::sample::select(vec![
            "\u{1b}", "[", "]", "P", "(", "\\", "\u{7}", "\u{9b}", "\u{9c}", "7", " ", "m", "é", "中",
            "\u{bfc8f}", "held", "-secret", "-key", "password=", "ghp_", "%2", "D", "\\u002", "\"",
        ]), 0..24),
    ) {
        let text = words.concat();
        let redactor = Redactor::new().with_secret("held-secret-key");
        let redacted = redactor.redact(&text);
        prop_assert!(!redacted.contains("held-secret-key"));
        let bytes = redactor.redact_bytes(text.as_bytes()).into_owned();
        prop_assert!(String::from_utf8(bytes).is_ok());
        let mut stream = redactor.stream();
        let mut shown: String = text.chars().map(|c| stream.push(c.encode_utf8(&mut [0; 4]))).collect();
        shown += &stream.finish();
        prop_assert_eq!(shown, redactor.redact_held(&text));
    }
}
