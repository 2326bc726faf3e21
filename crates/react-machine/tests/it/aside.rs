//! Calls that people settle, and runs that are put aside.

use std::time::Duration;

use backstop_react_machine::*;
use layer0::Code;
use layer0::event::*;
use layer0::id::CallId;
use layer0::usage::TokenUsage;

use crate::world::World;

impl World {
    /// Says what became of a call whose outcome is unknown, also of a run that is over; of any other call
    /// that is refused.
    pub(crate) fn settle(&mut self, pick: usize, happened: bool) {
        let verdict = if happened { Verdict::Happened } else { Verdict::DidNot };
        let of = |id: CallId| ToolResolved::new(id, "ops", verdict, None, "ops says so");
        let unsettled: Vec<CallId> = self.machine.unsettled().map(|(id, _)| id.clone()).collect();
        if let Some(id) = self.log.iter().find_map(|entry| match &entry.kind {
            EventKind::ToolResponded(answer) if answer.ok => Some(answer.call_id.clone()),
            _ => None,
        }) {
            self.refused(Input::fact(self.last(), of(id)));
        }
        self.refused(Input::fact(self.last(), of("no such call".into())));
        let Some(id) = unsettled.get(pick % unsettled.len().max(1)).cloned() else { return };
        let (at, ended) = (self.at(), self.finish.take());
        self.accept(Input::fact(at, of(id.clone())));
        assert_eq!(self.finish, ended, "it changes no end");
        self.refused(Input::fact(self.last(), of(id)));
    }

    /// Parks the run until the endpoint wants to be asked again.
    pub(crate) fn park(&mut self, ms: u16) {
        let Some(ModelCall { id, call, .. }) = self.model else { return };
        let at = self.at();
        let mut attempted = ModelAttempted::new(call, self.attempts + 1, "script");
        attempted.code = Some(Code::new("provider.rate_limited"));
        attempted.delay_ms = Some(ms.into());
        attempted.usage = Some(TokenUsage::new(3, 2).cached_tokens(1));
        self.attempts += 1;
        self.accept(Input::answer(at, id, attempted));
        let until = at.after(Duration::from_millis(ms.into()));
        let parked = RunParked::new(until, "provider.rate_limited", "busy");
        self.refused(Input::answer(at, EffectId::new(0, 1), parked.clone()));
        self.accept(Input::answer(at, id, parked));
        self.model = None;
        assert_eq!(self.machine.parked_until(), Some(until));
    }
}
