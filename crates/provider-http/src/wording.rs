use redact::Redactor;

use crate::ApiKey;

/// The most characters of a provider's words that an error carries.
const MAX_CHARS: usize = 500;

/// Makes text from outside fit for an error: redacted, on one line, bounded.
#[derive(Debug, Clone)]
pub(crate) struct Wording(Redactor);

impl Wording {
    pub(crate) fn hiding(key: Option<&ApiKey>) -> Self {
        let redactor = Redactor::new();
        Self(match key {
            Some(key) => redactor.with_secret(key.reveal()),
            None => redactor,
        })
    }

    pub(crate) fn also_hiding(self, key: &ApiKey) -> Self {
        Self(self.0.with_secret(key.reveal()))
    }

    pub(crate) fn clean(&self, text: &str) -> String {
        // Bound twice: a megabyte need not be searched, and a secret must not be cut in half
        // before it is found.
        let head: String = text.chars().take(MAX_CHARS * 8).collect();
        let redacted = self.0.redact(&head);
        let line = redacted
            .split(|c: char| c.is_whitespace() || c.is_control())
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
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
    fn a_provider_s_words_become_one_bounded_line_without_the_key() {
        let wording = Wording::hiding(Some(&ApiKey::new("held-secret-key")));
        assert_eq!(
            wording.clean("Incorrect API key:\r\n\theld-secret-key.\u{1b}[31m\0"),
            "Incorrect API key: [redacted]. [31m"
        );
        assert_eq!(wording.clean("Overloaded."), "Overloaded");
        let wording = wording.also_hiding(&ApiKey::new("another-secret"));
        assert_eq!(wording.clean("held-secret-key another-secret"), "[redacted] [redacted]");
        let long = wording.clean(&"é".repeat(100_000));
        assert_eq!(long.chars().count(), MAX_CHARS + 1);
    }
}
