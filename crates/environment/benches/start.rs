//! The cost of walls, compared with a bare start and with bubblewrap: one `true`, and a hundred at a time.
//!
//! `cargo bench -p backstop-environment`; with `-- --quick` for a short run.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

#[path = "start/bwrap.rs"]
mod bwrap;

use std::process::ExitCode;
use std::time::Duration;

use backstop_environment::{Helper, Network, Rules, WalledProgram, Walls};
use backstop_testkit::measure::{Goal, Row, Spread, median, now, ratios};
use futures_util::future::{join_all, try_join_all};
use layer0::error::EnvError;
use tokio::process::Command;
use tokio::runtime::Runtime;

/// The maximum time that walls may add to a start, and its name.
const MOST: Duration = Duration::from_millis(10);
const GOAL: Goal = Goal::Within("10 ms");
/// Number of concurrent programs.
const MANY: usize = 100;

fn main() -> ExitCode {
    backstop_environment::enter();
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let (single, many) = if is_quick { (20, 3) } else { (200, 15) };
    let runtime = Runtime::new().expect("a runtime can be made");
    match runtime.block_on(measure(single, many)) {
        Ok(rows) => {
            println!("{}", Row::HEAD);
            rows.iter().for_each(|row| println!("{row}"));
            if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            println!("skipped: {error}");
            ExitCode::SUCCESS
        }
    }
}

/// The compared walls.
struct Setting {
    /// All walls.
    all: Walls,
    /// Only walls around files.
    files: Walls,
    /// Whether bubblewrap is installed.
    has_bwrap: bool,
}

async fn measure(single: usize, many: usize) -> Result<Vec<Row>, EnvError> {
    let helper = Helper::this_program()?;
    let all = Rules::new()
        .network(Network::Hosts(vec!["api.example.com".to_owned()]))
        .read(["/usr"])
        .cpu(Duration::from_secs(5))
        .memory_mib(256)
        .processes(16)
        .file_mib(16)
        .wall(Duration::from_secs(30))
        .best_effort();
    let all = Walls::new(all, helper.clone())?;
    all.not_enforced().iter().for_each(|lack| println!("not measured: {lack}"));
    let files = Walls::new(Rules::new().files(), helper)?;
    let lack = bwrap::lack();
    if let Some(lack) = &lack {
        println!("not measured: bubblewrap, {lack}");
    }
    let setting = Setting { all, files, has_bwrap: lack.is_none() };
    let mut rows = one_at_a_time(&setting, single).await?;
    rows.extend(many_at_a_time(&setting, many).await?);
    Ok(rows)
}

/// Times until the start and until the end of a program.
#[derive(Default)]
struct Times {
    started: Vec<Duration>,
    ended: Vec<Duration>,
}

async fn one_at_a_time(setting: &Setting, rounds: usize) -> Result<Vec<Row>, EnvError> {
    let mut times: [Times; 4] = Default::default();
    for round in 0..=rounds {
        let taken = [
            spawned(Command::new("/bin/true")).await,
            if setting.has_bwrap { spawned(bwrap::command()).await } else { Default::default() },
            walled(&setting.files).await?,
            walled(&setting.all).await?,
        ];
        // The first round fills caches.
        for (times, (started, ended)) in times.iter_mut().zip(taken).filter(|_| round > 0) {
            times.started.push(started);
            times.ended.push(ended);
        }
    }
    let [bare, bwrap, files, all] = times;
    let row = |name: &str, walled: &[Duration], bare: &[Duration], goal| {
        let more = walled.iter().zip(bare).map(|(walled, bare)| walled.saturating_sub(*bare));
        Row::new(name, Spread::of(more.map(|more| more.div_duration_f64(MOST))), goal)
    };
    println!(
        "a bare start took {:?}, one in all walls {:?}; until their ends {:?} and {:?}",
        median(&bare.started),
        median(&all.started),
        median(&bare.ended),
        median(&all.ended)
    );
    let mut rows = vec![
        row("more for a start in all walls", &all.started, &bare.started, GOAL),
        row("more for a start with files walled", &files.started, &bare.started, GOAL),
        row("more until the end in all walls", &all.ended, &bare.ended, Goal::None),
    ];
    if setting.has_bwrap {
        let beside = |name, walled: &[Duration]| {
            Row::new(name, Spread::of(ratios(walled, &bwrap.ended)), Goal::None)
        };
        rows.push(row("more until the end in bubblewrap", &bwrap.ended, &bare.ended, Goal::None));
        rows.push(beside("all walls to bubblewrap, until the end", &all.ended));
        rows.push(beside("files walled to bubblewrap, until the end", &files.ended));
    }
    Ok(rows)
}

async fn many_at_a_time(setting: &Setting, rounds: usize) -> Result<Vec<Row>, EnvError> {
    let (mut bare, mut bwrap, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let began = now();
        join_all((0..MANY).map(|_| spawned(Command::new("/bin/true")))).await;
        let bare_took = began.elapsed();
        let began = now();
        if setting.has_bwrap {
            join_all((0..MANY).map(|_| spawned(bwrap::command()))).await;
        }
        let bwrap_took = began.elapsed();
        let began = now();
        try_join_all((0..MANY).map(|_| walled(&setting.all))).await?;
        let all_took = began.elapsed();
        if round > 0 {
            bare.push(bare_took);
            bwrap.push(bwrap_took);
            all.push(all_took);
        }
    }
    println!("{MANY} at a time: bare {:?}, in all walls {:?}", median(&bare), median(&all));
    let row = |name: String, over: &[Duration], under: &[Duration]| {
        Row::new(name, Spread::of(ratios(over, under)), Goal::None)
    };
    let mut rows = vec![row(format!("{MANY} in all walls to {MANY} bare"), &all, &bare)];
    if setting.has_bwrap {
        rows.push(row(format!("{MANY} in bubblewrap to {MANY} bare"), &bwrap, &bare));
        rows.push(row(format!("{MANY} in all walls to {MANY} in bubblewrap"), &all, &bwrap));
    }
    Ok(rows)
}

/// Runs a command to its end, without walls.
async fn spawned(mut command: Command) -> (Duration, Duration) {
    let began = now();
    let mut child = command.env_clear().spawn().expect("it is there");
    let started = began.elapsed();
    let status = child.wait().await.expect("it ends");
    assert!(status.success(), "{status}");
    (started, began.elapsed())
}

async fn walled(walls: &Walls) -> Result<(Duration, Duration), EnvError> {
    let program = WalledProgram::new("/bin/true", [], "/", Default::default());
    let began = now();
    let mut walled = walls.command(program).spawn().await?;
    let started = began.elapsed();
    let ended = walled.wait().await?;
    assert!(ended.is_success(), "{ended}");
    Ok((started, began.elapsed()))
}
