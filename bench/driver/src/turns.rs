//! What a turn costs in one process.

use std::path::{Path, PathBuf};

use backstop_testkit::measure::{Goal, Spread};
use contest::Round;

use crate::Effort;
use crate::contestant::{Contestant, take_turns};
use crate::peers::{AGENTPLANE, Peers, SALVOR};
use crate::table::{Line, Table, allocations, cpu, ratio};

const TURNS: [&str; 3] = ["10", "50", "200"];
const STORES: [(&str, &str); 3] =
    [("none", "no store"), ("memory", "log in memory"), ("sqlite", "SQLite `normal`")];
/// Beside a peer that syncs each commit, too.
const SYNCED: (&str, &str) = ("sqlite-full", "SQLite `full`");

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
                events are on; the record is kept where the line says. Below 1, Backstop costs less. \
                agentplane always keeps a journal: its own in memory stands beside Backstop's log in \
                memory, and its redb file, which is synced at each commit, beside SQLite at `full`. It \
                leaves the conversation to the driver of a model; the one here keeps none, as \
                agentplane's own stand-in does, which costs it less than a real one."
            .to_owned(),
        lines,
        left_out: left_out(peers),
    })
}

fn left_out(peers: &Peers) -> Vec<String> {
    let mut left_out = peers.missing.clone();
    left_out.retain(|peer| !peer.starts_with(SALVOR));
    left_out.push(format!(
        "{SALVOR}: its agent asks a model over HTTP only, through a client of its own that cannot be \
         exchanged, so that the model cannot be in the process; its store contends in the log"
    ));
    left_out
}

/// A program and its arguments.
type Start = (PathBuf, Vec<String>);

/// Who keeps no record of a run.
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

/// A peer with its journal.
struct Journaled {
    journal: &'static str,
    /// The one of Backstop's stores that keeps as much, and its label.
    beside: (&'static str, &'static str),
    start: Start,
}

fn journaled(peers: &Peers, turns: &str) -> Vec<Journaled> {
    let Some(folder) = &peers.agentplane else { return Vec::new() };
    let start = |journal: &str| {
        (folder.join("agentplane_turns"), vec![turns.to_owned(), journal.to_owned()])
    };
    vec![
        Journaled { journal: "journal in memory", beside: STORES[1], start: start("memory") },
        Journaled { journal: "redb", beside: SYNCED, start: start("redb") },
    ]
}

/// How many rounds are taken with a store. Syncing takes seconds a round, and no CPU time to speak of.
fn rounds_with(effort: Effort, store: &str) -> usize {
    if store == SYNCED.0 { effort.rounds.min(5) } else { effort.rounds }
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
            let is_goal = turns == "10" && name.starts_with("rig");
            let goal = match *store {
                "none" => Some(Goal::AtMost(0.30)),
                "memory" => Some(Goal::AtMost(0.50)),
                _ => None,
            };
            let goal = goal.filter(|_| is_goal);
            let what = format!("{turns} turns, {label}, to {name}");
            lines.push(Line::new(what, ratio(ours, theirs, cpu), goal));
        }
    }
    drop(contestants);
    for Journaled { beside: (store, label), start: (program, arguments), .. } in
        journaled(peers, turns)
    {
        let ours = Contestant::start(&peers.ours("turns"), &[turns, store])?;
        let mut both = [ours, start(&program, &arguments)?];
        let rounds = take_turns(&mut both, rounds_with(effort, store))?;
        let what = format!("{turns} turns, {label}, to {AGENTPLANE}");
        lines.push(Line::new(what, ratio(&rounds[0], &rounds[1], cpu), None));
    }
    Ok(lines)
}

/// How a turn's cost grows with the turns before it: a turn of a run of 200, to one of a run of 10. A
/// round has as many turns in both.
fn growth(peers: &Peers, effort: Effort) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    let mut grows = |name: &str, long: Start, short: Start, rounds, goal| -> Result<(), String> {
        let mut both = [start(&long.0, &long.1)?, start(&short.0, &short.1)?];
        let rounds = take_turns(&mut both, rounds)?;
        let ratio = ratio(&rounds[0], &rounds[1], cpu);
        lines.push(Line::new(format!("{name}: a mean turn of 200 to one of 10"), ratio, goal));
        Ok(())
    };
    for (store, label) in STORES {
        let of = |turns: &str| (peers.ours("turns"), vec![turns.to_owned(), store.to_owned()]);
        let goal = Some(Goal::AtMost(1.2));
        grows(&format!("Backstop, {label}"), of("200"), of("10"), effort.rounds, goal)?;
    }
    for ((name, long), (_, short)) in others(peers, "200").into_iter().zip(others(peers, "10")) {
        grows(&name, long, short, effort.rounds, None)?;
    }
    for (long, short) in journaled(peers, "200").into_iter().zip(journaled(peers, "10")) {
        let rounds = rounds_with(effort, long.beside.0);
        let name = format!("{AGENTPLANE}, {}", long.journal);
        grows(&name, long.start, short.start, rounds, None)?;
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
    let agentplane = peers.agentplane.as_ref().map(|folder| folder.join("agentplane_turns"));
    let in_memory = |turns| agentplane.as_deref().map(|program| count(program, &[turns, "memory"]));
    let mut lines = Vec::new();
    let a_turn = ours("200", "memory")?.into_iter().map(|round| allocations(&round) / 200.0);
    let what = "allocations, Backstop, log in memory: of a mean turn of 200";
    lines.push(Line::new(what, Spread::of(a_turn), Some(Goal::AtMost(45.0))));
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
        if let Some(theirs) = in_memory(turns) {
            let what = format!("allocations, {turns} turns, log in memory, to {AGENTPLANE}");
            let ratio = ratio(&ours(turns, "memory")?, &theirs?, allocations);
            lines.push(Line::new(what, ratio, None));
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
    if let (Some(long), Some(short)) = (in_memory("200"), in_memory("10")) {
        grows(AGENTPLANE, &long?, &short?);
    }
    Ok(lines)
}
