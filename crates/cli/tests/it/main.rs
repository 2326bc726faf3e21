//! The command as people run it: real processes, real files, real HTTP on loopback.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod asking;
mod bedrock;
mod bench;
mod durable;
mod exit_codes;
mod page;
mod reading;
// Elsewhere the platform says whom to trust, and no variable does.
#[cfg(target_os = "linux")]
mod refusing;
mod running;
