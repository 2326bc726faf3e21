//! How a contestant is asked for a round, and what it says of it.
//!
//! A contestant is a process, so that a Python program is asked as a Rust one is. It prints a
//! [`Ready`] when it is warm; then each line on standard input is a round, and each round is answered
//! with a [`Round`] on one line of standard output. It ends with its input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use cpu_time::ProcessTime;
use serde::{Deserialize, Serialize};

/// Who is ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// The contestant and its version, such as `rig-core 0.46.0`.
    pub contestant: String,
}

/// What a round took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Nanoseconds from beginning to end.
    pub wall_ns: u64,
    /// Nanoseconds of CPU time of the whole process.
    pub cpu_ns: u64,
    /// Allocations, where they are counted; growing one counts.
    #[serde(default)]
    pub allocations: u64,
    /// Bytes that were allocated and not freed, where they are counted.
    #[serde(default)]
    pub bytes_held: i64,
    /// Nanoseconds that half of its operations took at most, where each is timed.
    #[serde(default)]
    pub p50_ns: u64,
    /// Nanoseconds that 99 of 100 of them took at most.
    #[serde(default)]
    pub p99_ns: u64,
    /// Bytes that were written for good, where they are counted.
    #[serde(default)]
    pub bytes_stored: u64,
}

/// Answers rounds until the input ends. The first three are for warming up, and are not reported.
///
/// # Errors
///
/// When the driver is gone.
pub fn serve(contestant: &str, mut round: impl FnMut()) -> io::Result<()> {
    serve_rounds(contestant, || measured(&mut round))
}

/// As [`serve`], for rounds that measure by themselves.
///
/// # Errors
///
/// When the driver is gone.
pub fn serve_rounds(contestant: &str, mut round: impl FnMut() -> Round) -> io::Result<()> {
    count(std::env::var_os(COUNTS).is_some());
    (0..3).for_each(|_| _ = round());
    say(&Ready { contestant: contestant.to_owned() })?;
    for line in io::stdin().lock().lines() {
        line?;
        say(&round())?;
    }
    Ok(())
}

/// Measures one round.
pub fn measured(round: impl FnOnce()) -> Round {
    let (allocations, held) = (ALLOCATIONS.load(Relaxed), held());
    let (wall, cpu) = (Instant::now(), ProcessTime::now());
    round();
    let (wall, cpu) = (wall.elapsed(), cpu.elapsed());
    Round {
        wall_ns: wall.as_nanos() as u64,
        cpu_ns: cpu.as_nanos() as u64,
        allocations: ALLOCATIONS.load(Relaxed) - allocations,
        bytes_held: self::held() - held,
        ..Round::default()
    }
}

/// Says something to the driver.
///
/// # Errors
///
/// When the driver is gone.
pub fn say(what: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, what)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// The variable that, when it is set, has a contestant count its allocations.
pub const COUNTS: &str = "CONTEST_COUNTS";

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

/// Returns how many bytes are allocated and not freed, where they are counted.
pub fn held() -> i64 {
    ALLOCATED.load(Relaxed).wrapping_sub(FREED.load(Relaxed)) as i64
}

/// Begins to count, or stops. Counting costs time, so what is timed does without.
pub fn count(yes: bool) {
    COUNTING.store(yes, Relaxed);
}

/// The system's allocator, counted where [`count`] says so.
#[derive(Debug, Clone, Copy)]
pub struct Counted;

// SAFETY: everything is passed on to `System` as it came.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(0, layout.size());
        System.alloc(layout)
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if COUNTING.load(Relaxed) {
            FREED.fetch_add(layout.size() as u64, Relaxed);
        }
        System.dealloc(place, layout)
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        took(layout.size(), size);
        System.realloc(place, layout, size)
    }
}

fn took(before: usize, now: usize) {
    if COUNTING.load(Relaxed) {
        ALLOCATIONS.fetch_add(1, Relaxed);
        ALLOCATED.fetch_add(now as u64, Relaxed);
        FREED.fetch_add(before as u64, Relaxed);
    }
}
