//! What walls cost: the start of `true` within all of them beside a bare one, and until it has ended.
//!
//! `cargo bench -p backstop-environment`; with `-- --quick` for a glance.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

use std::process::ExitCode;
use std::time::Duration;

use backstop_environment::{Helper, Network, Rules, WalledProgram, Walls};
use backstop_testkit::measure::{Goal, Row, Spread, median, now};
use layer0::error::EnvError;
use tokio::process::Command;
use tokio::runtime::Runtime;

/// The most that walls may add to a start, and what it is called.
const MOST: Duration = Duration::from_millis(10);
const GOAL: Goal = Goal::Within("10 ms");

fn main() -> ExitCode {
    backstop_environment::enter();
    let rounds = if std::env::args().any(|argument| argument == "--quick") { 20 } else { 200 };
    let runtime = Runtime::new().expect("a runtime can be made");
    match runtime.block_on(measure(rounds)) {
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

/// How long something took until it ran, and until it had ended.
#[derive(Default)]
struct Times {
    started: Vec<Duration>,
    ended: Vec<Duration>,
}

async fn measure(rounds: usize) -> Result<Vec<Row>, EnvError> {
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
    let mut times: [Times; 3] = Default::default();
    for round in 0..=rounds {
        let mut taken = [bare().await, walled(&files).await?, walled(&all).await?];
        // In the first round, caches fill.
        for (times, (started, ended)) in times.iter_mut().zip(&mut taken).filter(|_| round > 0) {
            times.started.push(*started);
            times.ended.push(*ended);
        }
    }
    let [bare, files, all] = times;
    let row = |name: &str, walled: &[Duration], bare: &[Duration], goal| {
        let more = walled.iter().zip(bare).map(|(walled, bare)| walled.saturating_sub(*bare));
        Row::new(name, Spread::of(more.map(|more| more.div_duration_f64(MOST))), goal)
    };
    println!(
        "a bare start took {:?}, one in all walls {:?}",
        median(&bare.started),
        median(&all.started)
    );
    Ok(vec![
        row("more for a start in all walls", &all.started, &bare.started, GOAL),
        row("more for a start with files walled", &files.started, &bare.started, GOAL),
        row("more until the end in all walls", &all.ended, &bare.ended, Goal::None),
    ])
}

async fn bare() -> (Duration, Duration) {
    let began = now();
    let mut child = Command::new("/bin/true").env_clear().spawn().expect("`true` is there");
    let started = began.elapsed();
    child.wait().await.expect("`true` ends");
    (started, began.elapsed())
}

async fn walled(walls: &Walls) -> Result<(Duration, Duration), EnvError> {
    let program = WalledProgram::new("/bin/true", [], "/", Default::default());
    let began = now();
    let mut walled = walls.command(program).spawn().await?;
    let started = began.elapsed();
    walled.wait().await?;
    Ok((started, began.elapsed()))
}
