//! The switch that is added to a crate with mutants, and that its code calls.
//!
//! `MUTANT` selects a mutant by its number; `MUTANT_TRACE` names a file to which each number that the process asks for
//! is appended once.

#![allow(missing_docs, unused_parens, reason = "code of a build that is never shipped")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const MOST: usize = 100_000;

pub fn on(id: usize) -> bool {
    static CHOSEN: OnceLock<usize> = OnceLock::new();
    if let Some(trace) = trace() {
        trace.note(id);
    }
    *CHOSEN.get_or_init(|| std::env::var("MUTANT").ok().and_then(|id| id.parse().ok()).unwrap_or(0)) == id
}

pub fn less<A: PartialOrd<B>, B>(id: usize, a: &A, b: &B) -> bool {
    on(id + 1) != if on(id) { a <= b } else { a < b }
}

pub fn at_most<A: PartialOrd<B>, B>(id: usize, a: &A, b: &B) -> bool {
    on(id + 1) != if on(id) { a < b } else { a <= b }
}

pub fn more<A: PartialOrd<B>, B>(id: usize, a: &A, b: &B) -> bool {
    on(id + 1) != if on(id) { a >= b } else { a > b }
}

pub fn at_least<A: PartialOrd<B>, B>(id: usize, a: &A, b: &B) -> bool {
    on(id + 1) != if on(id) { a > b } else { a >= b }
}

struct Trace {
    file: File,
    met: Vec<AtomicBool>,
}

impl Trace {
    fn note(&self, id: usize) {
        if self.met.get(id).is_some_and(|met| !met.swap(true, Ordering::Relaxed)) {
            let _ = (&self.file).write_all(format!("{id}\n").as_bytes());
        }
    }
}

fn trace() -> Option<&'static Trace> {
    static TRACE: OnceLock<Option<Trace>> = OnceLock::new();
    let open = || {
        let path = std::env::var_os("MUTANT_TRACE")?;
        let file = OpenOptions::new().create(true).append(true).open(path).ok()?;
        Some(Trace { file, met: (0..MOST).map(|_| AtomicBool::new(false)).collect() })
    };
    TRACE.get_or_init(open).as_ref()
}
