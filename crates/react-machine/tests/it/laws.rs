//! The laws of the machine, under generated histories.
//!
//! A history is a list of choices. Most answer an effect that is open, because that is where the
//! interesting states are; the rest are wild: stale, repeated, unknown, out of place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use backstop_react_machine::*;
use layer0::ToolSpec;
use layer0::event::*;
use layer0::id::CallId;
use layer0::message::Message;
use proptest::prelude::*;

use crate::world::{World, choice, definition, hooks, patient};

/// Feeds a log to a new machine; returns it with its decisions beyond the log.
fn replay(definition: Arc<AgentDefinition>, log: &[MachineEntry]) -> (Machine, Vec<MachineEntry>) {
    let mut replay = Replay::new(
        CheckedDefinition::new(Arc::unwrap_or_clone(definition)).unwrap(),
        Setup::new("run_1".into()),
        [],
    );
    for entry in log {
        replay.next(entry).expect("the record of a run replays");
    }
    let replayed = replay.finish();
    (replayed.machine, replayed.beyond)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn histories_keep_the_laws(
        choices in prop::collection::vec(choice(), 0..60),
        patiently in any::<bool>(),
        remembering in any::<bool>(),
        hooked in any::<bool>(),
        idempotent in any::<bool>(),
        asking in any::<bool>(),
    ) {
        let mut definition = if patiently { patient() } else { definition() };
        Arc::make_mut(&mut definition).memory = remembering;
        if idempotent {
            let tools: Vec<_> = definition.tools.iter().cloned().map(ToolSpec::idempotent).collect();
            Arc::make_mut(&mut definition).tools = tools.into();
        }
        if asking {
            let asks = |tool: ToolSpec| tool.asks(serde_json::json!({}));
            let tools: Vec<_> = definition.tools.iter().cloned().map(asks).collect();
            Arc::make_mut(&mut definition).tools = tools.into();
        }
        if hooked {
            Arc::make_mut(&mut definition).hooks = hooks();
        }
        let mut world = World::of(definition.clone());
        let mut prefixes = vec![(world.log.len(), world.machine.clone())];
        for choice in choices {
            world.step(choice);
            prefixes.push((world.log.len(), world.machine.clone()));
        }

        // Entries are numbered without a gap, causes point backwards, time never does.
        for (index, entry) in world.log.iter().enumerate() {
            prop_assert_eq!(entry.seq, index as u64 + 1);
            prop_assert!(entry.caused_by.is_none_or(|cause| cause < entry.seq));
        }
        prop_assert!(world.log.is_sorted_by_key(|entry| entry.at));

        // One answer per call, and only to calls that were asked for.
        let mut answers = BTreeMap::<CallId, usize>::new();
        let mut asked = BTreeSet::new();
        for entry in &world.log {
            match &entry.kind {
                EventKind::ModelResponded(responded) => {
                    for call in responded.tool_calls.iter() {
                        prop_assert!(asked.insert(call.id.clone()), "call ids are unique");
                    }
                }
                EventKind::ToolResponded(responded) => {
                    prop_assert!(asked.contains(&responded.call_id));
                    *answers.entry(responded.call_id.clone()).or_default() += 1;
                }
                _ => {}
            }
        }
        prop_assert!(answers.values().all(|count| *count == 1));

        world.check_approvals();

        // Bounds hold.
        let usage = world.machine.usage();
        prop_assert!(usage.model_calls - world.below.model_calls <= 5 * world.episodes);
        prop_assert!(usage.tool_calls <= world.max_tool_calls());
        prop_assert_eq!(usage.total_tokens, u64::from(usage.model_attempts - world.lost) * 5);

        // The end is the last entry of its episode, and the only one of its kind there.
        let ends = |entry: &MachineEntry| {
            matches!(entry.kind, EventKind::RunFinished(_) | EventKind::RunFailed(_))
        };
        let count = world.log.iter().filter(|entry| ends(entry)).count();
        let open = u32::from(world.finish.is_none());
        prop_assert_eq!(u32::try_from(count), Ok(world.episodes - open));
        for pair in world.log.windows(2) {
            let is_opened = matches!(pair[1].kind, EventKind::RunReopened(_));
            prop_assert_eq!(ends(&pair[0]), is_opened, "{:?}", pair);
        }
        let budgets = |entry: &&MachineEntry| matches!(entry.kind, EventKind::BudgetExhausted(_));
        let count = world.log.iter().filter(budgets).count();
        prop_assert!(u32::try_from(count).is_ok_and(|count| count <= world.episodes));
        if world.finish.is_some() {
            prop_assert!(world.log.last().is_some_and(ends));
            prop_assert_eq!(answers.len(), asked.len(), "no call is left without an answer");
        }

        // Every tool message answers a call of the assistant message before it.
        let mut waiting = BTreeSet::new();
        for message in world.machine.transcript().messages() {
            match &**message {
                Message::Assistant { tool_calls, .. } => {
                    prop_assert!(waiting.is_empty());
                    waiting.extend(tool_calls.iter().map(|call| call.id.clone()));
                }
                Message::Tool { tool_call_id, .. } => prop_assert!(waiting.remove(tool_call_id)),
                _ => prop_assert!(waiting.is_empty()),
            }
        }

        // The messages for the session equal those of the run, except for the machine's own words.
        if world.finish.is_some() {
            let read = collect_messages(world.log.iter().map(|entry| &entry.kind));
            let said = world.machine.transcript().messages().iter();
            let said: Vec<_> = said.filter(|said| !matches!(&***said, Message::System { .. })).collect();
            let said: Vec<_> = said.into_iter().map(|said| essence(said)).collect();
            let read: Vec<_> = read.iter().map(|read| essence(read)).collect();
            // They may differ in the answer that the run ended upon, before it was read.
            let same = said.len().min(read.len());
            prop_assert_eq!(&read[..same], &said[..same]);
            for (index, message) in read[same..].iter().chain(&said[same..]).enumerate() {
                let is_answer = matches!(message, Message::Assistant { .. });
                prop_assert_eq!(is_answer, index == 0, "{:?} {:?}", read, said);
            }
        }

        // Replay from every prefix gives an equal machine and the same entries.
        for (length, machine) in &prefixes {
            let (mut replayed, beyond) = replay(definition.clone(), &world.log[..*length]);
            prop_assert_eq!(&beyond[..], &[]);
            let ended = machine.clone().poll() != MachineOutput::Wait;
            if ended || machine.paused_at() == Some(HookPoint::RunEnd) {
                // Counters that are not read any more may differ; what is left of the run may not.
                prop_assert_eq!(replayed.transcript(), machine.transcript());
                prop_assert_eq!(replayed.usage(), machine.usage());
                prop_assert_eq!(replayed.poll(), machine.clone().poll());
                // The start of a next episode would be the same too.
                let mut machine = machine.clone();
                if let Ok(reopened) = machine.reopening("ops", None, None) {
                    let at = machine.now();
                    for machine in [&mut machine, &mut replayed] {
                        let opened = machine.handle(MachineInput::fact(at, reopened.clone()));
                        prop_assert_eq!(opened, Ok(()));
                    }
                    prop_assert_eq!(replayed, machine);
                }
            } else {
                prop_assert_eq!(&replayed, machine);
            }
        }
    }
}

/// Returns a message without the words that the machine chooses.
fn essence(message: &Message) -> Message {
    match message {
        Message::Tool { tool_call_id, content, images, is_error } => {
            let content = content.split("\nNote: ").next().unwrap_or_default().into();
            let (tool_call_id, images) = (tool_call_id.clone(), images.clone());
            Message::Tool { tool_call_id, content, images, is_error: *is_error }
        }
        Message::User { content, .. } if content.starts_with("The answer ") => Message::user("?"),
        other => other.clone(),
    }
}
