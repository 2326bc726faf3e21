//! Worlds and moves to draw: they cross features, and most of them fit what is open.

use proptest::prelude::*;

use super::rules::{Room, Rules, ToolRules};

/// Something that the world does next, where it fits; otherwise the plain next step is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Move {
    Admit(u8),
    Answer {
        stop: u8,
        calls: usize,
        arguments: u8,
        text: u8,
    },
    AnswerTool {
        pick: usize,
        result: u8,
    },
    AskPerson(usize),
    Below {
        pick: usize,
        kind: u8,
    },
    Cancel,
    Decide {
        pick: usize,
        verdict: u8,
    },
    Die,
    Dispatch {
        pick: usize,
        is_recorded: bool,
    },
    FailAttempt {
        is_last: bool,
    },
    FailModel {
        by_limit: bool,
    },
    GiveBudget(u8),
    HookOfTool {
        pick: usize,
        is_after: bool,
    },
    Hooks(u8),
    Input {
        word: u8,
    },
    Memory {
        fails: bool,
    },
    Next,
    Note,
    Park(u32),
    Probe {
        pick: usize,
        verdict: u8,
    },
    Reopen {
        more: bool,
        says: bool,
    },
    Resume(u32),
    RetryTool(usize),
    Settle {
        pick: usize,
        happened: bool,
    },
    Tick(u32),
    TickToLimit {
        early: bool,
    },
    /// Plain steps, until the model is asked, or the caller.
    UntilAsked,
    UntilShort,
}

/// Draws a move.
pub(super) fn one_move() -> impl Strategy<Value = Move> {
    use Move::*;
    prop_oneof![
        10 => Just(Next),
        8 => (0..24_u8, 1..5_usize, 0..3_u8, 0..4_u8)
            .prop_map(|(stop, calls, arguments, text)| Answer { stop, calls, arguments, text }),
        6 => any::<u8>().prop_map(Admit),
        6 => (0..4_usize, 0..6_u8).prop_map(|(pick, result)| AnswerTool { pick, result }),
        2 => (0..4_usize).prop_map(AskPerson),
        6 => (0..4_usize, 0..8_u8).prop_map(|(pick, kind)| Below { pick, kind }),
        2 => Just(Cancel),
        5 => (0..4_usize, 0..6_u8).prop_map(|(pick, verdict)| Decide { pick, verdict }),
        3 => Just(Die),
        5 => (0..4_usize, prop::bool::weighted(0.8))
            .prop_map(|(pick, is_recorded)| Dispatch { pick, is_recorded }),
        3 => any::<bool>().prop_map(|is_last| FailAttempt { is_last }),
        1 => any::<bool>().prop_map(|by_limit| FailModel { by_limit }),
        2 => (0..4_u8).prop_map(GiveBudget),
        1 => (0..4_usize, any::<bool>())
            .prop_map(|(pick, is_after)| HookOfTool { pick, is_after }),
        2 => (0..24_u8).prop_map(Hooks),
        2 => (0..4_u8).prop_map(|word| Input { word }),
        2 => any::<bool>().prop_map(|fails| Memory { fails }),
        1 => Just(Note),
        2 => (0..60_000_u32).prop_map(Park),
        3 => (0..4_usize, 0..3_u8).prop_map(|(pick, verdict)| Probe { pick, verdict }),
        4 => (any::<bool>(), any::<bool>()).prop_map(|(more, says)| Reopen { more, says }),
        2 => (0..60_000_u32).prop_map(Resume),
        2 => (0..4_usize).prop_map(RetryTool),
        4 => (0..4_usize, any::<bool>())
            .prop_map(|(pick, happened)| Settle { pick, happened }),
        1 => any::<bool>().prop_map(|early| TickToLimit { early }),
        3 => prop_oneof![Just(0), 0..20_000_u32, 20_000..60_000_u32].prop_map(Tick),
    ]
}

fn counts(most: u64) -> impl Strategy<Value = Option<u64>> {
    prop_oneof![1 => (1..most).prop_map(Some), 2 => (most..4 * most).prop_map(Some), 1 => Just(None)]
}

fn room() -> impl Strategy<Value = Room> {
    (
        counts(12),
        counts(8),
        counts(90),
        prop::option::weighted(0.3, 1..60_u64),
        counts(150_000),
        prop::option::weighted(0.3, 5..60_u64),
    )
        .prop_map(|(attempts, executions, total_tokens, input_tokens, wall_ms, events)| Room {
            attempts,
            executions,
            total_tokens,
            input_tokens,
            output_tokens: input_tokens,
            wall_ms: wall_ms.map(|wall| wall + 1_000),
            events,
        })
}

fn tool() -> impl Strategy<Value = ToolRules> {
    let flag = || prop::bool::weighted(0.3);
    (flag(), flag(), flag(), flag()).prop_map(|(is_idempotent, has_probe, dispatches, explores)| {
        ToolRules {
            name: "",
            is_idempotent: is_idempotent && !dispatches,
            has_probe: has_probe && !dispatches,
            only_dispatches: dispatches,
            is_exploratory: explores,
            expires_after_ms: explores.then_some(50_000),
        }
    })
}

/// Draws the numbers of an agent.
pub(super) fn rules() -> impl Strategy<Value = Rules> {
    let guard = || prop::option::of(0..4_u64);
    let share = prop::option::weighted(0.4, room());
    let flags = (prop::bool::weighted(0.3), prop::bool::weighted(0.3), 1..4_usize, 1..4_usize);
    let guards = (1..7_u32, guard(), guard(), guard());
    (guards, room(), share, flags, tool(), tool()).prop_map(
        |(guards, budget, share, flags, one, two)| {
            let (has_memory, has_hooks, max_parallel_tools, max_concurrent_tools) = flags;
            let (max_iterations, loops, observations, stagnation) = guards;
            Rules {
                run: "run_1",
                max_iterations,
                max_parallel_tools: max_parallel_tools + 1,
                max_concurrent_tools,
                max_repeated_batch_steps: loops,
                max_observation_steps: observations.map(|limit| limit + 1),
                max_stagnation_steps: stagnation,
                budget,
                share: share.map(|share| Room { wall_ms: None, events: None, ..share }),
                has_memory,
                has_hooks,
                tools: vec![ToolRules { name: "look", ..one }, ToolRules { name: "send", ..two }],
            }
        },
    )
}
