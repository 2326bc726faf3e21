//! Runs over HTTP on loopback.

use provider::ScriptedAnswer;
use serde_json::json;
use testkit::Loopback;
use testkit::measure::{Goal, Spread};

use crate::Effort;
use crate::contestant::{Contestant, take_turns};
use crate::peers::Peers;
use crate::table::{Line, Table, cpu, ratio, wall};

pub(crate) fn contest(peers: &Peers, effort: Effort) -> Result<Table, String> {
    let says = ScriptedAnswer { text: Some("done".into()), ..ScriptedAnswer::default() };
    let reply = testkit::openai::reply(&says, &json!({ "stream": false }));
    let server = Loopback::serving(move |_| reply.clone());
    let url = format!("{}/v1", server.url());
    let mut lines = Vec::new();
    for at_once in ["1", "16"] {
        let mut contestants = vec![
            Contestant::start(&peers.ours("http"), &["backstop", &url, "200", at_once])?,
            Contestant::start(&peers.ours("http"), &["bare", &url, "200", at_once])?,
        ];
        for (_, folder) in &peers.rigs {
            let program = folder.join("rig_http");
            contestants.push(Contestant::start(&program, &[&url, "200", at_once])?);
        }
        let rounds = take_turns(&mut contestants, effort.rounds)?;
        let mut add = |what: &str, ratio: Spread, goal| {
            lines.push(Line::new(format!("{at_once} at once: {what}"), ratio, goal));
        };
        let (ours, bare) = (&rounds[0], &rounds[1]);
        add("time of a run, to bare reqwest", ratio(ours, bare, wall), Some(Goal::AtMost(1.15)));
        add("CPU of a run, to bare reqwest", ratio(ours, bare, cpu), None);
        for ((name, _), theirs) in peers.rigs.iter().zip(&rounds[2..]) {
            add(&format!("time of a run, to {name}"), ratio(ours, theirs, wall), None);
            add(&format!("CPU of a run, to {name}"), ratio(ours, theirs, cpu), None);
        }
    }
    Ok(Table {
        title: "Runs over HTTP",
        about: "Runs of one turn against an OpenAI-compatible server on loopback that keeps \
                connections open and has its answer ready. Bare reqwest posts one body and reads the \
                answer as JSON. Runs a second are the inverse of the time of a run."
            .to_owned(),
        lines,
        left_out: Vec::new(),
    })
}
