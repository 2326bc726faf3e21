//! The journal that remembers.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_event_log::LogError;
use layer0::Timestamp;
use layer0::event::{Event, EventKind};
use layer0::id::RunId;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::journal::{
    AppendContents, AskId, AttemptEnd, Fact, Journal, Step, StepEnd, StepId, StepReply,
};
use crate::local_journal::LocalJournal;

/// The answers of a journal, in order, as JSON. They outlive the process.
#[derive(Clone, Default)]
pub(super) struct Entries(Arc<Mutex<Vec<String>>>);

#[derive(Serialize, Deserialize)]
enum Entry {
    Now(Timestamp),
    Id(RunId),
    Appended(Vec<Event>),
    Told(Timestamp, Vec<Fact>),
}

impl Entries {
    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn get(&self, index: usize) -> Option<Entry> {
        let entries = self.0.lock().unwrap();
        entries.get(index).map(|entry| serde_json::from_str(entry).unwrap())
    }

    fn all(&self) -> Vec<Entry> {
        (0..self.count()).filter_map(|index| self.get(index)).collect()
    }

    fn keep(&self, entry: &Entry) {
        self.0.lock().unwrap().push(serde_json::to_string(entry).unwrap());
    }

    /// Returns the first id that was drawn.
    pub(super) fn first_id(&self) -> Option<RunId> {
        self.all().into_iter().find_map(|entry| match entry {
            Entry::Id(id) => Some(id),
            _ => None,
        })
    }

    /// Returns when the last thing happened.
    pub(super) fn last_time(&self) -> Timestamp {
        let times = self.all().into_iter().rev().find_map(|entry| match entry {
            Entry::Now(at) | Entry::Told(at, _) => Some(at),
            Entry::Id(_) | Entry::Appended(_) => None,
        });
        times.unwrap_or_default()
    }

    fn ends(&self, counts: impl Fn(&StepEnd) -> bool) -> usize {
        let entries = self.all();
        let told = entries.iter().filter_map(|entry| match entry {
            Entry::Told(_, facts) => Some(facts),
            _ => None,
        });
        let ends = told.flatten().filter(|fact| matches!(fact, Fact::Ended(_, end) if counts(end)));
        ends.count()
    }

    /// Returns how many attempts the provider has answered.
    pub(super) fn attempts(&self) -> usize {
        self.ends(
            |end| matches!(end, StepEnd::Attempt(end) if !matches!(end, AttemptEnd::NotBegun)),
        )
    }

    /// Returns the number of failed executions of the tool that waits, repeated or not.
    pub(super) fn waits(&self) -> u32 {
        let has_failed = |fact: &EventKind| matches!(fact, EventKind::ToolResponded(it) if &*it.tool == "wait" && !it.ok);
        let waits = self.ends(|end| match end {
            StepEnd::Execution(end) => end.again.is_some() || end.facts.0.iter().any(has_failed),
            _ => false,
        });
        u32::try_from(waits).unwrap()
    }
}

/// Answers from its entries as far as they go, then from a live journal whose answers it keeps.
pub(super) struct Durable {
    live: LocalJournal,
    entries: Entries,
    /// Whether another process began the run.
    is_again: bool,
    /// Number of answered entries.
    answered: usize,
    dies_after: usize,
    died: Option<oneshot::Sender<()>>,
    steps: u64,
    /// Steps whose end is not among the entries yet.
    open: Vec<(StepId, Step)>,
    stopped: Vec<StepId>,
    /// The live ids of steps.
    started: Vec<(StepId, StepId)>,
    timer: Option<Timestamp>,
    is_watched: bool,
}

impl Durable {
    pub(super) fn new(
        live: LocalJournal,
        entries: Entries,
        dies_after: usize,
        died: oneshot::Sender<()>,
    ) -> Self {
        Self {
            live,
            is_again: entries.count() > 0,
            entries,
            answered: 0,
            dies_after,
            died: Some(died),
            steps: 0,
            open: Vec::new(),
            stopped: Vec::new(),
            started: Vec::new(),
            timer: None,
            is_watched: false,
        }
    }

    fn is_live(&self) -> bool {
        self.answered >= self.entries.count()
    }

    /// Takes the next entry; `None` once they are answered. Never returns once it died.
    async fn next_entry(&mut self) -> Option<Entry> {
        if self.answered >= self.dies_after {
            drop(self.died.take());
            std::future::pending::<()>().await;
        }
        let entry = self.entries.get(self.answered);
        self.answered += usize::from(entry.is_some());
        entry
    }

    fn keep(&mut self, entry: &Entry) {
        self.entries.keep(entry);
        self.answered += 1;
    }

    /// Starts the steps that the entries have as started and not ended.
    fn go_live(&mut self) {
        for (id, mut step) in std::mem::take(&mut self.open) {
            // It may have been started before, and its child run too.
            if let Step::Execution(execution) = &mut step
                && let Some(Ok(child)) = &mut execution.child
            {
                child.goes_on |= self.is_again;
            }
            // Another process may perform it.
            let step = serde_json::to_string(&step).unwrap();
            let live = self.live.start(serde_json::from_str(&step).unwrap());
            self.started.push((id, live));
            if self.stopped.contains(&id) {
                self.live.stop(live);
            }
        }
        self.live.timer(self.timer);
        if std::mem::take(&mut self.is_watched) {
            self.live.watch();
        }
    }

    /// Gives the end of a live step the id that the run knows.
    fn named(&self, fact: Fact) -> Fact {
        match fact {
            Fact::Ended(ended, end) => {
                let known = self.started.iter().find(|(_, live)| *live == ended);
                Fact::Ended(known.expect("only started steps end").0, end)
            }
            other => other,
        }
    }
}

#[async_trait]
impl Journal for Durable {
    async fn now(&mut self) -> Timestamp {
        match self.next_entry().await {
            Some(Entry::Now(at)) => at,
            Some(_) => panic!("something else was asked"),
            None => {
                let at = self.live.now();
                self.keep(&Entry::Now(at));
                at
            }
        }
    }

    async fn new_id(&mut self) -> RunId {
        match self.next_entry().await {
            Some(Entry::Id(id)) => id,
            Some(_) => panic!("something else was asked"),
            None => {
                let id = self.live.new_id();
                self.keep(&Entry::Id(id.clone()));
                id
            }
        }
    }

    async fn append(&mut self, batch: &mut AppendContents) -> Result<(), LogError> {
        match self.next_entry().await {
            Some(Entry::Appended(events)) => {
                let again: Vec<_> = batch.entries.iter().map(|entry| &entry.kind).collect();
                let before: Vec<_> = events.iter().map(|event| &event.kind).collect();
                assert_eq!(again, before, "another append than before");
                batch.entries.clear();
                batch.taken.clear();
                batch.written = events;
                Ok(())
            }
            Some(_) => panic!("something else was asked"),
            None => {
                self.live.append(batch).await?;
                self.keep(&Entry::Appended(batch.written.clone()));
                Ok(())
            }
        }
    }

    fn start(&mut self, step: Step) -> StepId {
        self.steps += 1;
        let id = StepId(self.steps);
        self.open.push((id, step));
        id
    }

    fn stop(&mut self, step: StepId) {
        self.stopped.push(step);
        if let Some((_, live)) = self.started.iter().find(|(id, _)| *id == step) {
            self.live.stop(*live);
        }
    }

    fn answer(&mut self, ask: AskId, told: StepReply) {
        if self.is_live() {
            self.live.answer(ask, told);
        }
    }

    fn timer(&mut self, at: Option<Timestamp>) {
        self.timer = at;
    }

    fn watch(&mut self) {
        self.is_watched = true;
    }

    async fn next(&mut self, told: &mut Vec<Fact>) -> Result<Timestamp, LogError> {
        match self.next_entry().await {
            Some(Entry::Told(at, facts)) => {
                for fact in &facts {
                    match fact {
                        Fact::Ended(ended, _) => self.open.retain(|(id, _)| id != ended),
                        Fact::Inbox(_) => self.is_watched = false,
                        Fact::Timer => self.timer = None,
                        Fact::Cancelled | Fact::Late(_) | Fact::Signal(_) | Fact::Asked(..) => {}
                    }
                }
                told.extend(facts);
                Ok(at)
            }
            Some(_) => panic!("something else was asked"),
            None => {
                debug_assert!(self.is_live());
                self.go_live();
                let mut facts = Vec::new();
                let at = self.live.next(&mut facts).await?;
                let facts: Vec<_> = facts.into_iter().map(|fact| self.named(fact)).collect();
                let entry = Entry::Told(at, facts);
                self.keep(&entry);
                let Entry::Told(at, facts) = entry else { unreachable!() };
                told.extend(facts);
                Ok(at)
            }
        }
    }
}
