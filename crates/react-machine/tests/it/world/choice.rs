//! The choices of which a random history is made.

use proptest::prelude::*;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Choice {
    /// Answer the open model call: (stop reason, number of calls, duplicate ids, has text).
    Answer { stop: u8, calls: usize, same_ids: bool, text: u8 },
    /// Fail one attempt of the open model call.
    Attempt,
    /// Fail the open model call.
    Fail,
    /// Admit or refuse the waiting batch; the bits say which call runs.
    Admit(u8),
    /// Answer an open execution.
    ToolAnswer { pick: usize, ok: bool, clock_back: bool },
    /// Run an open execution once more.
    Retry { pick: usize },
    /// Dispatch a run for an open execution, or let the one that is below return.
    Dispatch { pick: usize, used: u32 },
    /// A running call asks a person.
    AskPerson { pick: usize },
    /// Leave a note.
    Note,
    /// Stop the run.
    Cancel,
    /// Answer the hooks of the pause: they let the run continue, one fails, or one stops the run.
    Hooks(u8),
    /// Decide an open approval.
    Decide { pick: usize, verdict: Decided },
    /// A hook fails or stops the run around a tool call.
    ToolHook { pick: usize, after: bool, stop: bool },
    /// Let a person settle a call.
    Settle { pick: usize, happened: bool },
    /// Time passes.
    Tick(u16),
    /// The process dies, and another one takes the run over.
    Die,
    /// Reopen an ended run, with or without more budget and a message.
    Reopen { with_budget: bool, says: bool },
    /// Send something that does not fit.
    Wild { kind: u8, number: u32 },
}

/// The end of an open approval.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Decided {
    Agreed,
    /// Approved with other arguments than the shown ones.
    Changed,
    Denied,
    Expired,
}

pub(crate) fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        6 => (0..10_u8, 0..5_usize, any::<bool>(), 0..4_u8)
            .prop_map(|(stop, calls, same_ids, text)| Choice::Answer { stop, calls, same_ids, text }),
        2 => Just(Choice::Attempt),
        1 => Just(Choice::Fail),
        5 => any::<u8>().prop_map(Choice::Admit),
        8 => (0..8_usize, any::<bool>(), any::<bool>())
            .prop_map(|(pick, ok, clock_back)| Choice::ToolAnswer { pick, ok, clock_back }),
        2 => (0..8_usize).prop_map(|pick| Choice::Retry { pick }),
        3 => (0..8_usize, 0..4_u32).prop_map(|(pick, used)| Choice::Dispatch { pick, used }),
        2 => (0..8_usize).prop_map(|pick| Choice::AskPerson { pick }),
        1 => Just(Choice::Note),
        1 => Just(Choice::Cancel),
        5 => any::<u8>().prop_map(Choice::Hooks),
        4 => (0..4_usize, verdict()).prop_map(|(pick, verdict)| Choice::Decide { pick, verdict }),
        1 => (0..4_usize, any::<bool>(), any::<bool>())
            .prop_map(|(pick, after, stop)| Choice::ToolHook { pick, after, stop }),
        1 => (0..4_usize, any::<bool>())
            .prop_map(|(pick, happened)| Choice::Settle { pick, happened }),
        2 => any::<u16>().prop_map(Choice::Tick),
        2 => Just(Choice::Die),
        4 => (any::<bool>(), any::<bool>())
            .prop_map(|(with_budget, says)| Choice::Reopen { with_budget, says }),
        3 => (0..9_u8, 0..4_u32).prop_map(|(kind, number)| Choice::Wild { kind, number }),
    ]
}

fn verdict() -> impl Strategy<Value = Decided> {
    use Decided::*;
    prop_oneof![3 => Just(Agreed), 1 => Just(Changed), 3 => Just(Denied), 1 => Just(Expired)]
}
