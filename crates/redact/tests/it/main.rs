//! Secrets that the redactor finds, and text that it leaves.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod forms;
mod harmless;
mod json;
mod patterns;
mod settings;
mod stream;
mod tokens;

/// Returns characters of many kinds for tokens that no scanner of repositories takes for real.
fn filler(alphabet: &str, length: usize) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    (0..length).map(|index| letters[(index * 7 + index / 5) % letters.len()]).collect()
}

fn alnum(length: usize) -> String {
    filler("aB3dE5gH7jK9mN2pQ4sT6vW8yZ0cF1", length)
}

fn hex(length: usize) -> String {
    filler("0a1b2c3d4e5f6789", length)
}

fn lower(length: usize) -> String {
    filler("a3b5c7d9e2f4g6h8", length)
}

fn upper(length: usize) -> String {
    filler("A3B5C7D9E2F4G6H8", length)
}
