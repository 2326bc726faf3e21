//! Tests in processes of their own.

use std::process::Command;

/// Variable with the name of the test whose process this is.
const TEST: &str = "BACKSTOP_TEST_OWN_PROCESS";

/// Returns whether this is the own process of a test. If it is not, runs the test in such a process, and waits for its
/// end.
///
/// Some tests change what a whole process shares, as the clock is.
///
/// ```no_run
/// use backstop_testkit::is_own_process;
///
/// // In `tests/it/steps.rs`, with #[test].
/// fn clock_is_set() {
///     if is_own_process("steps::clock_is_set") {
///         // Set the clock, and look.
///     }
/// }
/// # clock_is_set();
/// ```
///
/// # Panics
///
/// If the test fails in its own process, or is not found there.
#[must_use = "the test goes on only in its own process"]
pub fn is_own_process(test: &str) -> bool {
    if std::env::var(TEST).is_ok_and(|own| own == test) {
        return true;
    }
    let binary = std::env::current_exe().expect("a test knows its binary");
    let mut own = Command::new(binary);
    own.args(["--exact", test, "--nocapture"]).env(TEST, test);
    let output = own.output().expect("a test can be run again");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test} fails in its own process:\n{said}\n{errors}");
    assert!(said.contains("1 passed"), "there is no test {test}:\n{said}");
    false
}
