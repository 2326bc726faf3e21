//! A judge for the machine that is not the machine: the rules of SPEC, written a second time.
//!
//! The model of the rules shares nothing with the machine but the events. Drawn histories cross features,
//! and each history is cut at every event: the machine is rebuilt there, recovered and played on.

mod agent;
mod below;
mod budgets;
mod calls;
mod crossings;
mod deaths;
mod dispatches;
mod due;
mod ends;
mod facts;
mod history;
mod model;
mod moves;
mod play;
mod player;
mod repeats;
mod rows;
mod rules;
mod themes;
mod turns;

use std::cell::RefCell;
use std::collections::BTreeMap;

use backstop_react_machine::*;
use layer0::event::EventKind;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use agent::setup;
use crossings::crossings;
use history::Happening;
use model::{Judge, judge};
use moves::Move;
use player::Player;
use rows::Row;
use rules::Rules;
use themes::{theme_count, worlds, worlds_of_theme};

/// Steps that a run takes after a cut.
const STEPS_AFTER_A_CUT: usize = 12;

/// Plays a run, and then again from every event on, as if the process had died there. Its row is held against the
/// machine there, too.
fn play(rules: &Rules, input: &str, moves: &[Move]) -> Vec<Happening> {
    let mut player = Player::new(rules.clone(), input);
    for next in moves {
        player.make(*next);
    }
    cut_at_each_event(rules, &player);
    player.history
}

fn cut_at_each_event(rules: &Rules, player: &Player) {
    let (definition, setup) = setup(rules);
    let mut replay = Replay::new(definition, setup, []);
    let mut judge = Judge::new(rules.clone());
    let mut log = player.log.iter();
    let (mut row, mut is_resumed) = (Row::new(), false);
    for happening in &player.history {
        judge.read(happening).unwrap();
        if let Happening::Event { .. } = happening {
            let entry = log.next().unwrap();
            replay.next(entry).unwrap();
            row.read(entry);
            let replayed = replay.clone().finish();
            // A run is recorded as resumed together with the fact that ends its wait.
            let resumes = matches!(entry.kind, EventKind::RunResumed(_));
            is_resumed = resumes || is_resumed && replayed.machine.is_waiting();
            if !is_resumed {
                check_row(row.clone(), &replayed);
            }
            play_on(replayed, rules, judge.clone());
        }
    }
}

/// Holds the row against the machine, which may decide more than was recorded.
fn check_row(mut row: Row, replayed: &Replayed) {
    replayed.beyond.iter().for_each(|entry| row.read(entry));
    row.check(&replayed.machine);
}

fn play_on(replayed: Replayed, rules: &Rules, judge: Judge) {
    let mut player = Player::resumed(replayed.machine, rules.clone(), judge);
    for entry in replayed.beyond {
        player.record(entry);
    }
    player.take_over();
    for _ in 0..STEPS_AFTER_A_CUT {
        player.step();
    }
}

/// Plays drawn worlds, and counts the crossings in their histories.
fn play_all(
    mut runner: TestRunner,
    worlds: &impl Strategy<Value = (Rules, Vec<Move>)>,
    drawn: &RefCell<BTreeMap<&'static str, u32>>,
) {
    let input = prop_oneof![19 => Just("question"), 1 => Just(" ")];
    let played = runner.run(&(worlds, input), |((rules, moves), input)| {
        let history = play(&rules, input, &moves);
        for crossing in crossings(&history) {
            *drawn.borrow_mut().entry(crossing).or_default() += 1;
        }
        Ok(())
    });
    if let Err(failed) = played {
        panic!("{failed}");
    }
}

fn cases(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// Spec: B1, B2, B3, G1, G2, G3, G4, G5, G6, D4, D5, D12, T14, A1, A2, A3, O2
#[test]
fn histories_are_what_the_judge_expects() {
    play_all(TestRunner::new(cases(60)), &worlds(), &RefCell::default());
}

/// The generators reach what they are for.
#[test]
fn histories_reach_every_crossing() {
    let drawn = RefCell::default();
    for theme in 0..theme_count() {
        let seed = [u8::try_from(theme).unwrap(); 32];
        let seed = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let runner = TestRunner::new_with_rng(cases(4), seed);
        play_all(runner, &worlds_of_theme(theme), &drawn);
    }
    let drawn = drawn.into_inner();
    let missing: Vec<_> = crossings::ALL.iter().filter(|it| !drawn.contains_key(*it)).collect();
    assert!(missing.is_empty(), "never drawn: {missing:?} of {drawn:?}");
}

/// A history of a plain theme.
fn plain_history() -> (Rules, Vec<Happening>) {
    let rules = themes::plain_rules();
    let call = Move::Answer { stop: 9, calls: 2, arguments: 0, text: 3 };
    let last = Move::Answer { stop: 6, calls: 0, arguments: 0, text: 3 };
    let ask = Move::Admit(0b0001_0011);
    let moves = [call, ask, Move::Next, Move::Next, Move::Next, Move::Next, Move::Cancel];
    let reopen = Move::Reopen { more: true, says: true };
    let moves = moves.into_iter().chain([reopen, Move::UntilAsked, last, Move::Next]);
    let mut player = Player::new(rules.clone(), "question");
    moves.for_each(|next| player.make(next));
    (rules, player.history)
}

/// The judge can complain: a history without one of its events, or with one twice, breaks a rule.
#[test]
fn judge_notices_a_changed_history() {
    let (rules, history) = plain_history();
    assert_eq!(judge(&rules, &history), Ok(()));
    for (place, happening) in history.iter().enumerate() {
        let Happening::Event { kind, .. } = happening else { continue };
        let mut without = history.clone();
        without.remove(place);
        assert!(judge(&rules, &without).is_err(), "{} is missing", kind.event_type());
        let mut twice = history.clone();
        twice.insert(place, happening.clone());
        assert!(judge(&rules, &twice).is_err(), "{} comes twice", kind.event_type());
    }
}
