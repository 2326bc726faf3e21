//! Checks that code which decides who owns a run does not measure intervals with the time of day.
//!
//! The time of day may be set at any moment. An interval that is measured with it ends too early or never.

use crate::tidy::finding::Finding;
use crate::tidy::workspace::SourceFile;

/// Sources in which intervals are measured, with the files among them that record times.
const MEASURING: [(&str, &[&str]); 2] = [
    ("crates/store-postgres/src/", &["background.rs", "queue.rs", "state.rs"]),
    ("crates/worker/src/", &[]),
];

/// Finds uses of the time of day in code that must measure with `Clock::monotonic`.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    let stamps = |(folder, allowed): &(&str, &[&str])| {
        file.path.strip_prefix(folder).is_some_and(|rest| !allowed.contains(&rest))
    };
    if !MEASURING.iter().any(stamps) {
        return Vec::new();
    }
    let lines = file.text.lines().enumerate().filter(|(_, line)| {
        line.contains("lock.now()") || line.contains("Clock::now") || line.contains("lock().now()")
    });
    let message = "measure intervals with `Clock::monotonic`; the time of day may be set";
    lines.map(|(place, _)| Finding::error(&file.path, place + 1, message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&SourceFile::new(path.to_owned(), text.to_owned()).unwrap())
            .into_iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn time_of_day_measures_nothing() {
        let text =
            "fn f() {\n    let now = SystemClock.now();\n    let at = self.clock.now();\n}\n";
        assert_eq!(lines("crates/worker/src/rounds.rs", text), [2, 3]);
        assert_eq!(lines("crates/store-postgres/src/writer/lane.rs", text), [2, 3]);
        assert_eq!(lines("crates/store-postgres/src/state.rs", text), [0; 0]);
        assert_eq!(lines("crates/react/src/run.rs", text), [0; 0]);
        let measured = "fn f() { SystemClock.monotonic(); }\n";
        assert_eq!(lines("crates/worker/src/rounds.rs", measured), [0; 0]);
    }
}
