//! Comparative measurements, so that the result is a ratio that does not depend on the machine.
//!
//! The compared functions run alternately, A B A B, and each ratio is that of neighbours: a machine that slows down
//! slows both. The result is the median of the ratios; the smallest and the largest show its reliability.
//!
//! ```
//! use backstop_testkit::measure::{Goal, Row, Spread, interleaved, ratios};
//!
//! let [short, long] = interleaved(
//!     9,
//!     [&mut || drop("x".repeat(1_000)), &mut || drop("x".repeat(100_000))],
//! );
//! let ratio = Spread::of(ratios(&long, &short));
//! println!("{}", Row::new("a long text to a short one", ratio, Goal::AtMost(100.0)));
//! ```

use std::fmt;
use std::time::{Duration, Instant};

/// The median of some measurements, and their spread.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Spread {
    /// Median; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl Spread {
    /// Summarizes some measurements; without any, everything is NaN.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match *values.as_slice() {
            [] => f64::NAN,
            _ if values.len() % 2 == 1 => values[middle],
            _ => f64::midpoint(values[middle - 1], values[middle]),
        };
        let [min, max] = [values.first(), values.last()].map(|end| *end.unwrap_or(&f64::NAN));
        Self { median, min, max }
    }
}

/// Runs each function once a round, alternately, and returns its time in each round.
///
/// A first round, which fills caches, does not count.
pub fn interleaved<const N: usize>(
    rounds: usize,
    mut works: [&mut dyn FnMut(); N],
) -> [Vec<Duration>; N] {
    let mut took = [const { Vec::new() }; N];
    for round in 0..=rounds {
        for (work, took) in works.iter_mut().zip(&mut took) {
            let began = now();
            work();
            let elapsed = began.elapsed();
            if round > 0 {
                took.push(elapsed);
            }
        }
    }
    took
}

/// Returns the ratio of each of `over` to its neighbour of `under`.
pub fn ratios(over: &[Duration], under: &[Duration]) -> impl Iterator<Item = f64> {
    over.iter().zip(under).map(|(over, under)| over.div_duration_f64(*under))
}

/// Returns the median of some times; zero without any.
#[must_use]
pub fn median(times: &[Duration]) -> Duration {
    let seconds = Spread::of(times.iter().map(Duration::as_secs_f64)).median;
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Returns the current time, for a caller that measures by itself.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "what is measured here is the machine itself")]
pub fn now() -> Instant {
    Instant::now()
}

/// The goal of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Goal {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// No goal: the ratio explains another one.
    None,
    /// At most 1, because it is relative to a limit, such as `20 µs`.
    Within(&'static str),
}

/// A ratio with its goal. Prints as one line of a table.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Row {
    /// Name of the measurement.
    pub name: String,
    /// Measured ratio.
    pub ratio: Spread,
    /// Goal of the ratio.
    pub goal: Goal,
}

impl Row {
    /// Header line of the table.
    pub const HEAD: &str =
        "what                                                 median of goal           min to max";

    /// Combines a ratio with its goal.
    pub fn new(name: impl Into<String>, ratio: Spread, goal: Goal) -> Self {
        Self { name: name.into(), ratio, goal }
    }

    /// Returns whether the median meets the goal.
    #[must_use]
    pub fn is_met(&self) -> bool {
        let median = self.ratio.median;
        match self.goal {
            Goal::AtLeast(limit) => median >= limit,
            Goal::AtMost(limit) => median <= limit,
            Goal::None => true,
            Goal::Within(_) => median <= 1.0,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, ratio: Spread { median, min, max }, goal } = self;
        write!(f, "{name:<52}{median:>7.2} ")?;
        match goal {
            Goal::AtLeast(limit) => write!(f, "{:<18}", format!("of at least {limit}"))?,
            Goal::AtMost(limit) => write!(f, "{:<18}", format!("of at most {limit}"))?,
            Goal::None => write!(f, "{:<18}", "-")?,
            Goal::Within(limit) => write!(f, "{:<18}", format!("of {limit}"))?,
        }
        write!(f, "{min:.2} to {max:.2}")?;
        if self.is_met() { Ok(()) } else { f.write_str("  MISSED") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle_and_the_ends() {
        #[track_caller]
        fn check(values: &[f64], [median, min, max]: [f64; 3]) {
            assert_eq!(Spread::of(values.iter().copied()), Spread { median, min, max });
        }
        check(&[3.0], [3.0, 3.0, 3.0]);
        check(&[9.0, 1.0, 2.0], [2.0, 1.0, 9.0]);
        check(&[9.0, 1.0, 2.0, 4.0], [3.0, 1.0, 9.0]);
        assert!(Spread::of([]).median.is_nan());
    }

    #[test]
    fn ratios_are_of_neighbours() {
        let ms = |times: [u64; 3]| times.map(Duration::from_millis);
        let ratios: Vec<f64> = ratios(&ms([10, 40, 9]), &ms([5, 10, 9])).collect();
        assert_eq!(ratios, [2.0, 4.0, 1.0]);
        assert_eq!(median(&ms([10, 40, 9])), Duration::from_millis(10));
        assert_eq!(median(&[]), Duration::ZERO);
    }

    #[test]
    fn works_take_turns_after_a_warmup_round() {
        let order = std::cell::RefCell::new(String::new());
        let note = |name| order.borrow_mut().push(name);
        let [a, b] = interleaved(2, [&mut || note('a'), &mut || note('b')]);
        assert_eq!((a.len(), b.len()), (2, 2));
        assert_eq!(order.into_inner(), "ababab");
    }

    #[test]
    fn a_row_says_whether_its_goal_is_met() {
        let spread = |median| Spread { median, min: 0.5, max: 3.0 };
        #[track_caller]
        fn check(row: &Row, met: bool, text: &str) {
            assert_eq!(row.is_met(), met);
            let words: Vec<String> =
                row.to_string().split_whitespace().map(ToOwned::to_owned).collect();
            assert_eq!(words.join(" "), text);
        }
        check(
            &Row::new("it", spread(1.5), Goal::AtMost(1.5)),
            true,
            "it 1.50 of at most 1.5 0.50 to 3.00",
        );
        check(
            &Row::new("it", spread(9.99), Goal::AtLeast(10.0)),
            false,
            "it 9.99 of at least 10 0.50 to 3.00 MISSED",
        );
        check(
            &Row::new("it", spread(10.0), Goal::AtLeast(10.0)),
            true,
            "it 10.00 of at least 10 0.50 to 3.00",
        );
        check(&Row::new("it", spread(9.99), Goal::None), true, "it 9.99 - 0.50 to 3.00");
        check(
            &Row::new("it", spread(1.01), Goal::Within("20 µs")),
            false,
            "it 1.01 of 20 µs 0.50 to 3.00 MISSED",
        );
        check(
            &Row::new("it", spread(f64::NAN), Goal::AtMost(2.0)),
            false,
            "it NaN of at most 2 0.50 to 3.00 MISSED",
        );
    }
}
