use std::fmt;

use backstop_testkit::measure::{Goal, Spread};
use contest::Round;

/// What came of a contest.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) title: &'static str,
    /// What is measured, and how to read it.
    pub(crate) about: String,
    pub(crate) lines: Vec<Line>,
    /// Who did not take part, and why.
    pub(crate) left_out: Vec<String>,
}

/// One ratio.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) ratio: Spread,
    pub(crate) goal: Option<Goal>,
}

impl Line {
    pub(crate) fn new(what: impl Into<String>, ratio: Spread, goal: Option<Goal>) -> Self {
        Self { what: what.into(), ratio, goal }
    }

    pub(crate) fn is_met(&self) -> bool {
        match self.goal {
            Some(Goal::AtLeast(limit)) => self.ratio.median >= limit,
            Some(Goal::AtMost(limit)) => self.ratio.median <= limit,
            Some(Goal::Within(_)) => self.ratio.median <= 1.0,
            _ => true,
        }
    }
}

/// Returns the ratios of neighbouring rounds.
pub(crate) fn ratio(over: &[Round], under: &[Round], of: fn(&Round) -> f64) -> Spread {
    Spread::of(over.iter().zip(under).map(|(over, under)| of(over) / of(under)))
}

pub(crate) fn cpu(round: &Round) -> f64 {
    round.cpu_ns as f64
}

pub(crate) fn wall(round: &Round) -> f64 {
    round.wall_ns as f64
}

pub(crate) fn p50(round: &Round) -> f64 {
    round.p50_ns as f64
}

pub(crate) fn p99(round: &Round) -> f64 {
    round.p99_ns as f64
}

pub(crate) fn allocations(round: &Round) -> f64 {
    round.allocations as f64
}

/// Markdown.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "### {}\n\n{}\n", self.title, self.about.trim())?;
        writeln!(f, "| what | median | min to max | goal |\n|---|---|---|---|")?;
        for line in &self.lines {
            let Spread { median, min, max, .. } = line.ratio;
            let goal = match line.goal {
                Some(Goal::AtLeast(limit)) => format!("at least {limit}"),
                Some(Goal::AtMost(limit)) => format!("at most {limit}"),
                Some(Goal::Within(limit)) => format!("1, of {limit}"),
                _ => "-".to_owned(),
            };
            let missed = if line.is_met() { "" } else { ", missed" };
            let digits = if median < 0.1 { 4 } else { 2 };
            writeln!(
                f,
                "| {} | {median:.digits$} | {min:.digits$} to {max:.digits$} | {goal}{missed} |",
                line.what
            )?;
        }
        for left_out in &self.left_out {
            writeln!(f, "\nLeft out: {left_out}")?;
        }
        Ok(())
    }
}
