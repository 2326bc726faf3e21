//! Themes: moves that lead into features that meet.

use proptest::prelude::*;

use super::moves::{Move, one_move, rules};
use super::rules::{Room, Rules, ToolRules};

/// Draws the rules of an agent and the moves of its world; most lead into features that meet.
pub(crate) fn worlds() -> impl Strategy<Value = (Rules, Vec<Move>)> {
    prop_oneof![
        9 => (0..themes().len()).prop_flat_map(worlds_of_theme),
        1 => (rules(), prop::collection::vec(one_move(), 0..40)),
    ]
}

/// Returns how many themes there are.
pub(crate) fn theme_count() -> usize {
    themes().len()
}

/// Draws worlds in which the features of a theme meet, undisturbed or among other moves.
pub(crate) fn worlds_of_theme(theme: usize) -> impl Strategy<Value = (Rules, Vec<Move>)> {
    let drawn = || prop::collection::vec(one_move(), 0..20);
    (rules(), prop::bool::weighted(0.6), drawn(), drawn()).prop_map(
        move |(mut rules, is_plain, first, then)| {
            let Theme { fit, moves } = themes().swap_remove(theme);
            let first = if is_plain { Vec::new() } else { first };
            if is_plain {
                relax(&mut rules);
                fit(&mut rules);
            }
            let moves = first.into_iter().chain([Move::UntilAsked]).chain(moves).chain(then);
            (rules, moves.collect())
        },
    )
}

/// Returns rules under which nothing ends a run by itself.
pub(crate) fn plain_rules() -> Rules {
    let tool = |name| ToolRules { name, ..ToolRules::default() };
    let mut rules = Rules {
        run: "run_1",
        max_iterations: 9,
        max_parallel_tools: 4,
        max_concurrent_tools: 4,
        max_repeated_batch_steps: None,
        max_observation_steps: None,
        max_stagnation_steps: None,
        budget: Room::default(),
        share: None,
        has_memory: true,
        has_hooks: false,
        tools: vec![tool("look"), tool("send")],
    };
    relax(&mut rules);
    rules
}

/// Lets nothing but the theme end a run.
fn relax(rules: &mut Rules) {
    (rules.max_iterations, rules.max_parallel_tools, rules.max_concurrent_tools) = (9, 4, 4);
    rules.max_repeated_batch_steps = None;
    rules.max_observation_steps = None;
    rules.max_stagnation_steps = None;
    (rules.budget, rules.share) = (Room::default(), None);
    for tool in &mut rules.tools {
        (tool.is_idempotent, tool.only_dispatches) = (false, false);
    }
}

/// Moves that lead into features that meet, and the rules under which they do.
#[derive(Debug, Clone)]
struct Theme {
    fit: fn(&mut Rules),
    moves: Vec<Move>,
}

fn themes() -> Vec<Theme> {
    use Move::*;
    let any: fn(&mut Rules) = |_| ();
    let timed: fn(&mut Rules) = |rules| rules.budget.wall_ms = Some(100_000);
    let once: fn(&mut Rules) = |rules| rules.budget.executions = Some(1);
    let probed: fn(&mut Rules) = |rules| rules.tools[0].has_probe = true;
    let dispatches: fn(&mut Rules) = |rules| rules.tools[0].only_dispatches = true;
    let expires: fn(&mut Rules) = |rules| rules.tools[0].expires_after_ms = Some(50_000);
    let repeats: fn(&mut Rules) = |rules| rules.tools[0].is_idempotent = true;
    let stagnates: fn(&mut Rules) = |rules| rules.max_stagnation_steps = Some(1);
    let loops: fn(&mut Rules) = |rules| rules.max_repeated_batch_steps = Some(1);
    let one_at_a_time: fn(&mut Rules) = |rules| rules.max_concurrent_tools = 1;
    let alike = Answer { stop: 9, calls: 3, arguments: 1, text: 3 };
    let no = Decide { pick: 0, verdict: 5 };
    let hooked: fn(&mut Rules) = |rules| rules.has_hooks = true;
    let pause = Answer { stop: 2, calls: 1, arguments: 2, text: 1 };
    let last = Answer { stop: 6, calls: 0, arguments: 0, text: 3 };
    let unknown = Probe { pick: 0, verdict: 2 };
    let few: fn(&mut Rules) = |rules| {
        rules.share = Some(Room { attempts: Some(2), ..Room::default() });
    };
    let few_executions: fn(&mut Rules) = |rules| {
        rules.share = Some(Room { executions: Some(1), ..Room::default() });
    };
    let call = |calls| Answer { stop: 9, calls, arguments: 0, text: 3 };
    let settle = Settle { pick: 0, happened: true };
    let more = Reopen { more: true, says: false };
    let dispatch = Dispatch { pick: 0, is_recorded: true };
    let (run, ask, ask_one) = (Admit(0xf), Admit(0b0001_0001), Admit(0b0001_0011));
    let yes = Decide { pick: 0, verdict: 0 };
    let below = |kind| Below { pick: 0, kind };
    let theme = |fit: fn(&mut Rules), moves: &[Move]| Theme { fit, moves: moves.to_vec() };
    vec![
        theme(timed, &[call(2), run, settle, Tick(60_000), Tick(60_000), more]),
        theme(timed, &[call(2), run, settle, Die, Tick(60_000), Next]),
        theme(timed, &[call(1), ask, Tick(60_000), yes, Tick(50_000), Next, more]),
        theme(timed, &[TickToLimit { early: true }, TickToLimit { early: false }, more]),
        theme(timed, &[call(2), run, TickToLimit { early: true }, Next, Next, more]),
        theme(any, &[alike, Admit(0x7f), no, Next, more]),
        theme(any, &[alike, Admit(0x77), no, yes, Next, Next]),
        theme(
            one_at_a_time,
            &[call(3), run, Dispatch { pick: 0, is_recorded: true }, Cancel, more],
        ),
        theme(one_at_a_time, &[call(3), run, Cancel, settle, more]),
        theme(once, &[call(2), ask_one, Next, yes, Next, Next, more]),
        theme(once, &[call(2), ask_one, yes, Next, Next, more]),
        theme(any, &[call(1), ask, Cancel, more]),
        theme(any, &[call(1), ask, Input { word: 0 }, Cancel, more, Next]),
        theme(any, &[Input { word: 1 }, Cancel, more, Next]),
        theme(any, &[call(2), run, dispatch, Cancel, Next, more, below(6)]),
        theme(any, &[call(2), run, dispatch, Die, Next, Next, Next]),
        theme(any, &[Park(20_000), Cancel, more]),
        theme(any, &[Park(20_000), Resume(100), Resume(60_000), Next]),
        theme(any, &[call(2), run, Cancel, settle, Settle { pick: 0, happened: false }, more]),
        theme(any, &[call(1), run, Die, settle, Next, Next]),
        theme(any, &[call(2), run, Settle { pick: 1, happened: false }, Next, Next, settle]),
        theme(probed, &[call(1), run, Die, Probe { pick: 0, verdict: 1 }, Next]),
        theme(probed, &[call(1), run, Cancel, Probe { pick: 0, verdict: 0 }, more]),
        theme(repeats, &[call(2), run, Die, Die, Die, more]),
        theme(any, &[Die, Die, Die, more]),
        theme(any, &[call(1), run, AskPerson(0), Cancel, more]),
        theme(any, &[call(1), run, AskPerson(0), Die, Next]),
        theme(any, &[call(3), run, HookOfTool { pick: 0, is_after: true }, settle, Next, more]),
        theme(any, &[call(3), run, HookOfTool { pick: 1, is_after: true }, Die, more]),
        theme(any, &[FailAttempt { is_last: true }, Tick(0), Die, Next]),
        theme(any, &[pause; 7]),
        theme(any, &[pause, Die, pause, pause, pause, pause, Next, more]),
        theme(any, &[call(1), run, dispatch, dispatch, below(0), Below { pick: 1, kind: 0 }, Die]),
        theme(hooked, &[FailModel { by_limit: false }, Hooks(1), more]),
        theme(hooked, &[last, Hooks(0), more]),
        theme(hooked, &[call(2), Cancel, Hooks(0), more, call(2), Hooks(1)]),
        theme(probed, &[call(1), run, Die, unknown, settle, Next]),
        theme(stagnates, &[call(1), run, Next, call(1), more, call(1)]),
        theme(loops, &[call(1), run, Next, call(1), more, call(1), run, Next, call(1)]),
        theme(few, &[UntilShort, GiveBudget(0), Next, more]),
        theme(few, &[UntilShort, GiveBudget(2), Next, UntilShort, Die, GiveBudget(3), Next]),
        theme(few_executions, &[call(3), GiveBudget(1), Next, Next]),
        theme(dispatches, &[call(1), run, dispatch, below(0), Die, below(4), below(6), Next]),
        theme(dispatches, &[call(2), run, dispatch, AnswerTool { pick: 1, result: 0 }, Die, Die]),
        theme(expires, &[call(1), ask, Tick(60_000), Decide { pick: 0, verdict: 3 }, Next]),
    ]
}
