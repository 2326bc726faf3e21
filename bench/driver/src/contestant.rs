use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use contest::{Ready, Round};

/// A process that takes part.
#[derive(Debug)]
pub(crate) struct Contestant {
    /// Its name and version.
    pub(crate) name: String,
    child: Child,
    /// Closed, it ends the process.
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Contestant {
    /// Starts a program, and waits until it is warm.
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Result<Self, String> {
        Self::begin(Command::new(program).args(arguments))
    }

    /// As [`Contestant::start`], counting allocations, which slows it down.
    pub(crate) fn counting(program: &Path, arguments: &[&str]) -> Result<Self, String> {
        Self::begin(Command::new(program).args(arguments).env(contest::COUNTS, "1"))
    }

    /// As [`Contestant::start`], on the first core only.
    pub(crate) fn on_first_core(program: &Path, arguments: &[&str]) -> Result<Self, String> {
        Self::begin(Command::new("taskset").args(["-c", "0"]).arg(program).args(arguments))
    }

    fn begin(command: &mut Command) -> Result<Self, String> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let orders = child.stdin.take();
        let answers = child.stdout.take().ok_or("it has no output")?;
        let mut contestant =
            Self { name: String::new(), child, orders, answers: BufReader::new(answers).lines() };
        let ready = contestant.line()?;
        let ready: Ready = serde_json::from_str(&ready).map_err(|error| error.to_string())?;
        contestant.name = ready.contestant;
        Ok(contestant)
    }

    /// Has it do a round.
    pub(crate) fn round(&mut self) -> Result<Round, String> {
        let orders = self.orders.as_mut().ok_or("it was told to end")?;
        orders.write_all(b"go\n").map_err(|error| format!("{}: {error}", self.name))?;
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|error| format!("{}: {error}", self.name))
    }

    fn line(&mut self) -> Result<String, String> {
        match self.answers.next() {
            Some(Ok(line)) => Ok(line),
            Some(Err(error)) => Err(error.to_string()),
            None => Err(format!("{} ended without an answer", self.name)),
        }
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

/// Has contestants take turns. Returns the rounds of each.
pub(crate) fn take_turns(
    contestants: &mut [Contestant],
    rounds: usize,
) -> Result<Vec<Vec<Round>>, String> {
    let mut all = vec![Vec::with_capacity(rounds); contestants.len()];
    for _ in 0..rounds {
        for (contestant, rounds) in contestants.iter_mut().zip(&mut all) {
            rounds.push(contestant.round()?);
        }
    }
    Ok(all)
}

/// Runs a program that says one round and ends.
pub(crate) fn once(program: &Path, arguments: &[&str]) -> Result<Round, String> {
    let output = Command::new(program).args(arguments).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot start: {error}"))?;
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{program:?}: {error}"))
}
