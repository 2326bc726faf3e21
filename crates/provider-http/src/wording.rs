use backstop_redact::Redactor;

use crate::ApiKey;

/// The most characters of a provider's text in an error.
const MAX_CHARS: usize = 500;

/// The longest word that is searched; a longer one is left out, as it would not fit into a message.
const MAX_WORD_BYTES: usize = 16 * 1024;

/// A filter that makes text from outside fit for an error: redacted, on one line, bounded.
#[derive(Debug)]
pub(crate) struct Wording(Redactor);

impl Wording {
    /// Creates a filter that removes these secrets.
    pub(crate) fn hiding<'k>(keys: impl IntoIterator<Item = &'k ApiKey>) -> Self {
        let keys = keys.into_iter().map(ApiKey::reveal);
        Self(keys.fold(Redactor::new(), |redactor, key| redactor.with_secret(key)))
    }

    pub(crate) fn clean(&self, text: &str) -> String {
        // Bounded twice, as a megabyte need not be searched. The first bound is between words,
        // because half a secret is not found. It may still cut a secret that is folded over lines,
        // so the stream holds back the beginning of one.
        let is_gap = |c: char| c.is_whitespace() || c.is_control();
        let mut head = String::new();
        let mut is_cut = false;
        for word in text.split_inclusive(is_gap) {
            if head.len() >= MAX_CHARS * 8 {
                is_cut = true;
                break;
            }
            let is_long = word.len() > MAX_WORD_BYTES;
            let gap = word.trim_start_matches(|c| !is_gap(c));
            head.extend(if is_long { ["…", gap] } else { [word, ""] });
        }
        if is_cut {
            head = self.0.stream().push(&head);
        }
        let head = self.0.redact(&head);
        let words: Vec<&str> = head.split(is_gap).filter(|word| !word.is_empty()).collect();
        let line = words.join(" ");
        let line = line.strip_suffix('.').unwrap_or(&line);
        match line.char_indices().nth(MAX_CHARS) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_message_becomes_one_bounded_line() {
        let wording =
            Wording::hiding([&ApiKey::new("held-secret-key"), &ApiKey::new("another-secret")]);
        assert_eq!(
            wording.clean("Incorrect API key:\r\n\theld-secret-key.\u{1b}[31m\0"),
            "Incorrect API key: [redacted]. [31m"
        );
        assert_eq!(wording.clean("Overloaded."), "Overloaded");
        assert_eq!(wording.clean("held-secret-key another-secret"), "[redacted] [redacted]");
        assert_eq!(wording.clean("held-sec\n  ret-key, too"), "[redacted], too");
        let long = wording.clean(&"é".repeat(MAX_WORD_BYTES / 2));
        assert_eq!(long.chars().count(), MAX_CHARS + 1);
        assert_eq!(wording.clean(&format!("a {} b", "é".repeat(MAX_WORD_BYTES / 2 + 1))), "a … b");
    }

    /// Spec: E10. Wherever the key stands, no piece of it is left.
    #[test]
    fn key_is_found_before_it_is_cut() {
        let key = "ahovcjqx".repeat(12) + "tail";
        let wording = Wording::hiding([&ApiKey::new(key.as_str())]);
        for spaces in [0, 400, 480, 3_900, 3_934, 3_999, 4_100, 100_000] {
            let said = wording.clean(&format!("denied{}{key}", " ".repeat(spaces)));
            assert!(!said.contains("ahov") && !said.contains("tail"), "{spaces}: {said}");
        }
        for keys in [30, 60, 1_000] {
            let said = wording.clean(&vec![key.as_str(); keys].join(" "));
            assert!(!said.contains("ahov") && !said.contains("tail"), "{keys}: {said}");
        }
    }
}
