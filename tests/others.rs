//! Against what others wrote: servers and suites from package registries. `cargo xtask others` installs them and
//! runs these tests; where they are not installed, each says so.
#![expect(clippy::print_stderr, reason = "a test that is not run says so")]

#[cfg(unix)]
mod airline;
#[cfg(unix)]
mod official;
