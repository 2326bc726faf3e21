//! Search for texts whose redaction, summary and storage cost more than linear time.
//!
//! `cargo bench -p backstop-error-store --bench cost -- 60` searches for 60 seconds. Any unit, repeated,
//! may take at most six times as long for 64 KiB as for 16 KiB.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use backstop_error_store::{NewError, Origin, Summary};
use backstop_redact::Redactor;
use backstop_testkit::measure::now;
use layer0::{Code, Timestamp, code};
use rustix::time::{ClockId, clock_gettime};

/// Fragments of text from tools and models, above all openings of constructs that may not end.
#[rustfmt::skip]
const FRAGMENTS: &[&str] = &[
    "password", "token", "api_key", "pass", "PWD", "key", "=", ":", "%3d", " ", "\"", "'", "`", "\\", "\\\\",
    "\n", "\r", "\t", "abc123def456", "x", ".", "9", "*", "$", "{", "}", ",", "[", "]", "(", ")", "&", "<", ">",
    "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "Private-Lines: 2", "Bearer ", "Authorization: ",
    "Digest username=\"a\"", "Cookie: a=b; c=d", "https://", "ada:pass@", "@", "//",
    "sk-abcdefghijklmnop1234", "npm_abcdefghijklmnopqrstuvwxyz0123456789", "--token ", "held", "-secret", "-key",
    "held-secret-key", "%2D", "%", "&#45;", "&amp;", "\\u002d", "\\x2d", "\u{1b}[31m", "\u{1b}]0;t", "\u{1b}",
    "\u{9b}", "\u{9b}1m", "\u{7}", "é", "👍", "123456789", "identified by '", "-u a:b12 ", "eyJabcdefgh.a.b",
    "AccountKey=", "sig=", "[redacted]", "\\n", "\\'", "\\\"", "must be ", "${", ";", "-", "_", "SG.", "1//0",
    "Traceback (most recent call last):\n", "thread 'main' panicked at ", "{\"message\":\"", "{\"error\":{", "}}",
];

const SMALL: usize = 16 * 1024;
const LARGE: usize = 4 * SMALL;
const MOST: f64 = 6.0;

fn main() -> ExitCode {
    let seconds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(10);
    let redactor = Redactor::new().with_secret("held-secret-key").with_secret("0123456789abcdef");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let began = now();
    let (mut tried, mut is_linear) = (0_u32, true);
    while began.elapsed() < Duration::from_secs(seconds) {
        let unit: String = (0..=random.below(3)).map(|_| random.fragment()).collect();
        let end: String = (0..random.below(3)).map(|_| random.fragment()).collect();
        tried += 1;
        for (name, read) in READERS {
            let ratio = growth(*read, &redactor, &unit, &end);
            if ratio > MOST {
                println!("{name}: {ratio:.1} times for {unit:?} and {end:?}");
                is_linear = false;
            }
        }
    }
    println!("{tried} units");
    if is_linear { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

type Read = fn(&Redactor, &str);

const READERS: &[(&str, Read)] = &[
    ("redact", |redactor, text| drop(black_box(redactor.redact(text)))),
    ("redact_held", |redactor, text| drop(black_box(redactor.redact_held(text)))),
    ("redact_bytes", |redactor, text| {
        drop(black_box(redactor.redact_bytes(&[text.as_bytes(), b"\xff"].concat())));
    }),
    ("stream", |redactor, text| {
        let mut stream = redactor.stream();
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.ceil_char_boundary(16));
            drop(black_box(stream.push(piece)));
            rest = behind;
        }
        drop(black_box(stream.finish()));
    }),
    ("summary", |_, text| drop(black_box(Summary::from_error(text, Some("CODE"))))),
    ("error", |redactor, text| {
        let origin = Origin::new(Timestamp::default(), "s", "run", "c", "sql");
        let reason = Code::new(code::TOOL_EXECUTION_FAILED);
        drop(black_box(NewError::new(origin, reason, None, text, redactor)));
    }),
];

/// Returns the ratio of the large text's time to the small text's. A large ratio is measured again, because caches are
/// cold at first.
fn growth(read: Read, redactor: &Redactor, unit: &str, end: &str) -> f64 {
    let text = |bytes: usize| unit.repeat(bytes / unit.len()) + end;
    let (small, large) = (text(SMALL), text(LARGE));
    let took = |text: &str| {
        let began = cpu_time();
        read(redactor, text);
        cpu_time().saturating_sub(began)
    };
    let (mut least_small, mut least_large) = (took(&small), took(&large));
    for _ in 0..9 {
        if least_large.div_duration_f64(least_small) <= MOST {
            break;
        }
        (least_small, least_large) = (least_small.min(took(&small)), least_large.min(took(&large)));
    }
    least_large.div_duration_f64(least_small)
}

/// Returns the processor time of this thread, which other load does not change.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn fragment(&mut self) -> &'static str {
        let count = u64::try_from(FRAGMENTS.len()).unwrap_or(1);
        usize::try_from(self.below(count)).map_or("", |index| FRAGMENTS[index])
    }
}
