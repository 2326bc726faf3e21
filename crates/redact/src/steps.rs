//! The work of a search, counted in tests: its cost has to be linear in the text, and times are not
//! reliable.

/// Counts this many bytes as read. Every loop whose length depends on the text calls this.
#[cfg(not(test))]
pub(crate) const fn count(_bytes: usize) {}

#[cfg(test)]
pub(crate) use counted::count;
#[cfg(test)]
use counted::measure;

#[cfg(test)]
mod counted {
    use std::cell::Cell;

    thread_local!(static STEPS: Cell<usize> = const { Cell::new(0) });

    pub(crate) fn count(bytes: usize) {
        STEPS.set(STEPS.get() + bytes + 1);
    }

    /// Returns the number of steps of `work`.
    pub(crate) fn measure(work: impl FnOnce()) -> usize {
        STEPS.set(0);
        work();
        STEPS.get()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::measure;
    use crate::Redactor;

    /// Names, signs, quotes, escapes, sequences and parts of tokens, to repeat.
    const FRAGMENTS: &[&str] = &[
        "password",
        "token",
        "api_key",
        "PWD",
        "key",
        "=",
        ":",
        "%3d",
        " ",
        "\"",
        "'",
        "`",
        "\\",
        "\\\\",
        "\\'",
        "\\\"",
        "\n",
        "abc123def456",
        "x",
        ".",
        "(",
        ")",
        "{",
        "}",
        ",",
        "[",
        "]",
        "&",
        "$",
        "<",
        ">",
        "9",
        "*",
        "must be",
        "a b",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "Private-Lines: 2",
        "Bearer ",
        "Authorization: ",
        "Digest realm=\"",
        "Cookie: a=b; c=d",
        "https://",
        "ada:pass@",
        "@",
        "--token ",
        "identified by '",
        "sk-abcdefghijklmnop1234",
        "eyJabcdefgh.a.b",
        "SG.",
        "held",
        "-secret",
        "-key",
        "%2D",
        "&#45;",
        "\\u002d",
        "\u{1b}[31m",
        "\u{1b}]0;t",
        "\u{1b}",
        "\u{9b}",
        "é",
    ];

    type Read = fn(&Redactor, &str);

    /// The three ways to read a text, the last one in pieces.
    const READERS: [(&str, Read); 3] = [
        ("redact", |redactor, text| drop(redactor.redact(text))),
        ("redact_held", |redactor, text| drop(redactor.redact_held(text))),
        ("stream", |redactor, text| {
            let mut stream = redactor.stream();
            let mut rest = text;
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.floor_char_boundary(16));
                drop(stream.push(piece));
                rest = behind;
            }
            drop(stream.finish());
        }),
    ];

    #[track_caller]
    fn check(unit: &str, end: &str) {
        let redactor = Redactor::new().with_secret("held-secret-key");
        let text = |kib: usize| unit.repeat(kib * 1024 / unit.len()) + end;
        for (name, read) in READERS {
            let steps = |kib| measure(|| read(&redactor, &text(kib)));
            let (small, large) = (steps(2), steps(8));
            assert!(large <= 6 * small, "{name} of {unit:?} and {end:?}: {small}, {large} steps");
        }
    }

    /// Spec: P7
    #[test]
    fn values_with_one_end_cost_linear_time() {
        for (unit, end) in [
            ("token=\\'", " "),
            ("password=\\'", " must be"),
            ("token=\\\\'", " "),
            ("token:x.", " "),
            ("token:x.", ")))"),
            ("token:x.", "                "),
            ("token=\\'", "9999"),
            ("x\u{1b}]0;t", ""),
            ("h\u{1b}[0m", ""),
            ("\u{9b}", ""),
        ] {
            check(unit, end);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Spec: P7
        #[test]
        fn cost_is_linear_in_the_text(
            unit in prop::collection::vec(prop::sample::select(FRAGMENTS), 1..5),
            end in prop::collection::vec(prop::sample::select(FRAGMENTS), 0..3),
        ) {
            check(&unit.concat(), &end.concat());
        }
    }
}
