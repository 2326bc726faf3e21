//! The secrets of a process, in all their written forms.

use std::collections::BTreeSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use crate::layer::{Layer, MAX_LAYERS};
use crate::steps;

/// A shorter form would match by accident.
const MIN_FORM_BYTES: usize = 8;
/// With more blanks in a secret, a fold is looked for at each of them, but not at several.
const MAX_BLANKS: usize = 4;

/// All forms that are not found by removing layers of the text.
#[derive(Debug)]
pub(crate) struct Forms {
    forms: Vec<Vec<u8>>,
    finder: AhoCorasick,
    /// A fast test that there is no match, as in most texts.
    filter: AhoCorasick,
    /// Whether a form begins with the byte.
    begins: [bool; 256],
    longest: usize,
}

impl Forms {
    /// Prepares the search; `None` without secrets to search for.
    pub(crate) fn new(secrets: &[String]) -> Option<Self> {
        let forms: BTreeSet<Vec<u8>> =
            secrets.iter().flat_map(|secret| list_forms(secret)).collect();
        let forms: Vec<Vec<u8>> = forms.into_iter().collect();
        let finder = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&forms).ok()?;
        let filter =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(&forms).ok()?;
        let mut begins = [false; 256];
        for form in &forms {
            begins[usize::from(form[0])] = true;
        }
        let longest = forms.iter().map(Vec::len).max()?;
        Some(Self { forms, finder, filter, begins, longest })
    }

    /// Returns the ranges of all matches.
    pub(crate) fn matches(&self, bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
        steps::count(bytes.len());
        let is_match = self.filter.is_match(bytes);
        let bytes = if is_match { bytes } else { &[] };
        self.finder.find_overlapping_iter(bytes).map(|found| found.range())
    }

    /// Returns the start of a form that continues past the end.
    pub(crate) fn open_at_end(&self, bytes: &[u8]) -> Option<usize> {
        let from = bytes.len().saturating_sub(self.longest - 1);
        (from..bytes.len()).find(|at| {
            let rest = &bytes[*at..];
            self.begins[usize::from(rest[0])]
                && self.forms.iter().any(|form| form.len() > rest.len() && form.starts_with(rest))
        })
    }
}

/// Returns a secret unchanged, with its own layers removed like those of the text, and in the
/// encodings that depend on its position in a text.
fn list_forms(secret: &str) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    for mut form in with_and_without_blanks(secret) {
        for _ in 0..MAX_LAYERS {
            let decoded = Layer::decode(&form, true).map(|layer| layer.bytes);
            let Some(decoded) = decoded.filter(|decoded| *decoded != form) else { break };
            forms.push(std::mem::replace(&mut form, decoded));
        }
        forms.push(form);
    }
    // Without surrounding white space it is the same secret.
    forms.push(secret.trim().as_bytes().to_vec());
    for bytes in [secret.as_bytes(), secret.trim().as_bytes()] {
        forms.extend(encode_base64(bytes));
        forms.push(bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect());
        forms.push(bytes.iter().flat_map(|byte| format!("{byte:02X}").into_bytes()).collect());
        // UTF-16: every other byte of the usual characters is zero.
        forms.push(bytes.iter().flat_map(|byte| [*byte, 0]).take(bytes.len() * 2 - 1).collect());
    }
    // A form that is not text occurs in no text, and would cut characters in half.
    forms.retain(|form| form.len() >= MIN_FORM_BYTES && std::str::from_utf8(form).is_ok());
    forms
}

/// Returns a secret with and without its blanks: a line may be folded at a blank, which is lost
/// then; in a form sent by a browser it is a `+`.
fn with_and_without_blanks(secret: &str) -> Vec<Vec<u8>> {
    let words: Vec<&str> = secret.split([' ', '\t']).collect();
    let blanks = words.len() - 1;
    let mut forms = vec![secret.as_bytes().to_vec()];
    if blanks == 0 {
        return forms;
    }
    forms.push(words.join("+").into_bytes());
    let joined = |is_joined: &dyn Fn(usize) -> bool| {
        let mut form = words[0].to_owned();
        for (index, word) in words[1..].iter().enumerate() {
            if !is_joined(index) {
                form.push(' ');
            }
            form.push_str(word);
        }
        form.into_bytes()
    };
    if blanks <= MAX_BLANKS {
        forms.extend((1..1_usize << blanks).map(|set| joined(&|index| set >> index & 1 == 1)));
    } else {
        forms.extend((0..blanks).map(|one| joined(&|index| index == one)));
        forms.push(joined(&|_| true));
    }
    forms
}

/// Returns the part of a secret's Base64 that does not depend on the text around it, for each of the three places it
/// may begin at in a group of three bytes.
fn encode_base64(secret: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let engines = [STANDARD, URL_SAFE];
    engines
        .into_iter()
        .flat_map(move |engine| {
            (0..3_usize).map(move |offset| {
                let mut bytes = vec![0; offset];
                bytes.extend_from_slice(secret);
                let encoded = engine.encode(&bytes).into_bytes();
                // The first character that only has bits of the secret, and the last.
                let (first, last) = ((offset * 8).div_ceil(6), bytes.len() * 8 / 6);
                encoded[first..last].to_vec()
            })
        })
        .collect::<Vec<_>>()
        .into_iter()
}
