//! What a turn costs in one process.

use std::path::{Path, PathBuf};

use contest::Round;
use testkit::measure::Goal;

use crate::Effort;
use crate::contestant::{Contestant, take_turns};
use crate::peers::Peers;
use crate::table::{Line, Table, allocations, cpu, ratio};

const TURNS: [&str; 3] = ["10", "50", "200"];
const STORES: [(&str, &str); 3] =
    [("none", "no store"), ("memory", "log in memory"), ("sqlite", "SQLite `normal`")];

pub(crate) fn contest(peers: &Peers, effort: Effort) -> Result<Table, String> {
    let mut lines = Vec::new();
    let sizes = if effort.quick { &TURNS[..1] } else { &TURNS[..] };
    for turns in sizes {
        lines.extend(of_size(peers, effort, turns)?);
    }
    lines.extend(growth(peers, effort)?);
    lines.extend(allocated(peers)?);
    Ok(Table {
        title: "Turns in process",
        about: "CPU time of a turn with one tool call, Backstop's to the peer's; the model is in the \
                process, its answers are ready, and the tool adds two integers. Guards, budgets and \
                events are on; the record is kept where the line says. Below 1, Backstop costs less."
            .to_owned(),
        lines,
        left_out: peers.missing.clone(),
    })
}

/// A program and its arguments.
type Start = (PathBuf, Vec<String>);

fn others(peers: &Peers, turns: &str) -> Vec<(String, Start)> {
    let mut others: Vec<(String, Start)> = Vec::new();
    for (name, folder) in &peers.rigs {
        let start = (folder.join("rig_turns"), vec![turns.to_owned()]);
        others.push(((*name).to_owned(), start));
    }
    for (name, script) in
        [("pydantic-ai", "pydantic_ai_turns.py"), ("LangGraph", "langgraph_turns.py")]
    {
        if let Some((python, script)) = peers.script(script) {
            let start = (python.to_owned(), vec![script, turns.to_owned()]);
            others.push((name.to_owned(), start));
        }
    }
    others
}

fn start(program: &Path, arguments: &[String]) -> Result<Contestant, String> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Contestant::start(program, &arguments)
}

fn of_size(peers: &Peers, effort: Effort, turns: &str) -> Result<Vec<Line>, String> {
    let others = others(peers, turns);
    let mut contestants = Vec::new();
    for (store, _) in STORES {
        contestants.push(Contestant::start(&peers.ours("turns"), &[turns, store])?);
    }
    for (_, (program, arguments)) in &others {
        contestants.push(start(program, arguments)?);
    }
    let rounds = take_turns(&mut contestants, effort.rounds)?;
    let (ours, theirs) = rounds.split_at(STORES.len());
    let mut lines = Vec::new();
    for ((name, _), theirs) in others.iter().zip(theirs) {
        for ((store, label), ours) in STORES.iter().zip(ours) {
            let is_goal = turns == "10" && *store == "memory" && name.starts_with("rig");
            let goal = is_goal.then_some(Goal::AtMost(0.25));
            let what = format!("{turns} turns, {label}, to {name}");
            lines.push(Line::new(what, ratio(ours, theirs, cpu), goal));
        }
    }
    Ok(lines)
}

/// How a turn's cost grows with the turns before it: a turn of a run of 200, to one of a run of 10. A
/// round has as many turns in both.
fn growth(peers: &Peers, effort: Effort) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    let mut grows = |name: &str, long: Start, short: Start, goal| -> Result<(), String> {
        let mut both = [start(&long.0, &long.1)?, start(&short.0, &short.1)?];
        let rounds = take_turns(&mut both, effort.rounds)?;
        let ratio = ratio(&rounds[0], &rounds[1], cpu);
        lines.push(Line::new(format!("{name}: a mean turn of 200 to one of 10"), ratio, goal));
        Ok(())
    };
    for (store, label) in STORES {
        let of = |turns: &str| (peers.ours("turns"), vec![turns.to_owned(), store.to_owned()]);
        grows(&format!("Backstop, {label}"), of("200"), of("10"), Some(Goal::AtMost(1.2)))?;
    }
    for ((name, long), (_, short)) in others(peers, "200").into_iter().zip(others(peers, "10")) {
        grows(&name, long, short, None)?;
    }
    Ok(lines)
}

/// What a turn allocates, and how that grows. A count is the same in every round.
fn allocated(peers: &Peers) -> Result<Vec<Line>, String> {
    let count = |program: &Path, arguments: &[&str]| -> Result<Vec<Round>, String> {
        let mut one = [Contestant::counting(program, arguments)?];
        Ok(take_turns(&mut one, 3)?.remove(0))
    };
    let ours = |turns, store| count(&peers.ours("turns"), &[turns, store]);
    let mut lines = Vec::new();
    for turns in ["10", "200"] {
        for (name, folder) in &peers.rigs {
            let theirs = count(&folder.join("rig_turns"), &[turns])?;
            for (store, label) in &STORES[..2] {
                let goal = (turns == "10" && *store == "memory").then_some(Goal::AtMost(0.25));
                let what = format!("allocations, {turns} turns, {label}, to {name}");
                let ratio = ratio(&ours(turns, store)?, &theirs, allocations);
                lines.push(Line::new(what, ratio, goal));
            }
        }
    }
    let mut grows = |name: &str, long: &[Round], short: &[Round]| {
        let what = format!("allocations, {name}: a turn of 200 to one of 10");
        lines.push(Line::new(what, ratio(long, short, allocations), None));
    };
    grows("Backstop, log in memory", &ours("200", "memory")?, &ours("10", "memory")?);
    for (name, folder) in &peers.rigs {
        let program = folder.join("rig_turns");
        grows(name, &count(&program, &["200"])?, &count(&program, &["10"])?);
    }
    Ok(lines)
}
