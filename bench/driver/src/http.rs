//! Runs over HTTP on loopback.

use std::path::Path;
use std::process::{Command, Stdio};

use backstop_provider::ScriptedAnswer;
use backstop_testkit::Loopback;
use backstop_testkit::measure::{Goal, Spread};
use serde_json::json;

use crate::Effort;
use crate::contestant::{Contestant, take_turns};
use crate::peers::Peers;
use crate::table::{Line, Table, cpu, ratio, wall};

/// Where client and server share cores as they like, a wake across cores takes longer than what is
/// measured; so each side keeps to its own.
struct Apart {
    /// The cores this process had; none where they cannot be set.
    before: Option<String>,
}

impl Apart {
    /// Takes the server's side, this thread and those it makes, off the first core.
    fn keep() -> Self {
        let taskset = |arguments: &[&str]| {
            let output =
                Command::new("taskset").args(arguments).stderr(Stdio::null()).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let this = std::process::id().to_string();
        let before = taskset(&["-p", "-c", &this]).and_then(|said| {
            let cores = said.rsplit(": ").next()?.trim().to_owned();
            taskset(&["-c", "0", "true"])?;
            taskset(&["-p", "-c", "1", &this])?;
            Some(cores)
        });
        Self { before }
    }

    fn start(&self, program: &Path, arguments: &[&str]) -> Result<Contestant, String> {
        match self.before {
            Some(_) => Contestant::on_first_core(program, arguments),
            None => Contestant::start(program, arguments),
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(cores) = &self.before {
            let mut taskset = Command::new("taskset");
            taskset.args(["-p", "-c", cores, &std::process::id().to_string()]);
            let _ = taskset.stdout(Stdio::null()).status();
        }
    }
}

pub(crate) fn contest(peers: &Peers, effort: Effort) -> Result<Table, String> {
    let says = ScriptedAnswer::saying("done");
    let reply = backstop_testkit::openai::reply(&says, &json!({ "stream": false }));
    let apart = Apart::keep();
    let server = Loopback::serving(move |_| reply.clone());
    let url = format!("{}/v1", server.url());
    let mut lines = Vec::new();
    for (at_once, most) in [("1", 1.15), ("16", 1.30)] {
        let ours = apart.start(&peers.ours("http"), &["backstop", &url, "200", at_once])?;
        let asked = server.requests().pop().ok_or("it asked for nothing")?.bytes;
        let body = String::from_utf8(asked).map_err(|error| error.to_string())?;
        let bare = ["bare", &url, "200", at_once, &body];
        let mut contestants = vec![ours, apart.start(&peers.ours("http"), &bare)?];
        for (_, folder) in &peers.rigs {
            let program = folder.join("rig_http");
            contestants.push(apart.start(&program, &[&url, "200", at_once])?);
        }
        let rounds = take_turns(&mut contestants, effort.rounds)?;
        let mut add = |what: &str, ratio: Spread, goal| {
            lines.push(Line::new(format!("{at_once} at once: {what}"), ratio, goal));
        };
        let (ours, bare) = (&rounds[0], &rounds[1]);
        add("time of a run, to bare reqwest", ratio(ours, bare, wall), Some(Goal::AtMost(most)));
        add("CPU of a run, to bare reqwest", ratio(ours, bare, cpu), None);
        for ((name, _), theirs) in peers.rigs.iter().zip(&rounds[2..]) {
            add(&format!("time of a run, to {name}"), ratio(ours, theirs, wall), None);
            add(&format!("CPU of a run, to {name}"), ratio(ours, theirs, cpu), None);
        }
    }
    Ok(Table {
        title: "Runs over HTTP",
        about: "Runs of one turn against an OpenAI-compatible server on loopback that keeps \
                connections open and has its answer ready. Bare reqwest posts the body that Backstop \
                sends, ready made, and reads the answer as JSON. Runs a second are the inverse of the \
                time of a run."
            .to_owned()
            + match apart.before {
                Some(_) => " Client and server each had a core of their own.",
                None => " Client and server shared cores as they liked, which moves these figures.",
            },
        lines,
        left_out: peers.missing_rigs(),
    })
}
