//! Inboxes and erasures that break one promise each.

use super::*;
use async_trait::async_trait;

#[async_trait]
impl Inbox for Defective {
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        self.sound.open_approvals().await
    }

    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
        let mut request = request;
        let run = match &request {
            InboxRequest::Cancel { run }
            | InboxRequest::Input { run, .. }
            | InboxRequest::Settle { run, .. } => run.clone(),
            _ => "run_1".into(),
        };
        if let InboxRequest::Settle { call, settlement, .. } = &mut request {
            let is_open = self.sound.summary(&run).await?.is_some_and(|run| run.is_open());
            let waiting = self.sound.inbox(&run).await?;
            let waits =
                waiting.iter().any(|row| matches!(row.request, InboxRequest::Settle { .. }));
            match self.defect {
                D::LosesTheOutput => settlement.output = None,
                D::SettlesOpenRunsOnly if !is_open => return Ok(false),
                // Each is another call to the sound log.
                D::SettlesAgainOnceTaken if !waits => *call = format!("{call}!").as_str().into(),
                D::SettlesAgainWhileItWaits if waits => *call = format!("{call}!").as_str().into(),
                D::SettlesOneCallARun => *call = "c".into(),
                _ => {}
            }
        }
        let by = if self.is(D::RequestIsFromNowhere) { "" } else { by };
        let accepted = self.sound.send(request.clone(), by, at).await?;
        let decides = matches!(request, InboxRequest::Decide { .. });
        if decides && self.is(D::DecidesBehindACancellation) {
            return Ok(true);
        }
        if accepted {
            let message = self.sound.inbox(&run).await?.pop();
            self.noted.lock().unwrap().sent.extend(message.map(|message| (run.clone(), message)));
            self.watches.ring(&run);
            return Ok(true);
        }
        let is_known = self.sound.summary(&run).await?.is_some();
        Ok(match self.defect {
            D::AcceptsRequestsAfterTheEnd => is_known,
            D::AcceptsRequestsBeforeTheStart => !is_known,
            _ => false,
        })
    }

    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        let mut inbox = self.sound.inbox(run).await?;
        match self.defect {
            D::InboxIsShared => {
                let noted = self.noted.lock().unwrap();
                inbox = noted.sent.iter().map(|(_, message)| message.clone()).collect();
            }
            D::DropsWhatCameTooLate => {
                let is_over = self.sound.summary(run).await?.is_some_and(|run| !run.is_open());
                inbox.retain(|row| !is_over || matches!(row.request, InboxRequest::Settle { .. }));
            }
            D::InboxNewestFirst => inbox.reverse(),
            D::LosesSettlements => {
                let is_over = self.sound.summary(run).await?.is_some_and(|run| !run.is_open());
                let settles =
                    |row: &InboxMessage| matches!(row.request, InboxRequest::Settle { .. });
                inbox.retain(|row| !is_over || !settles(row));
            }
            D::KeepsRequestsAfterTheEnd if inbox.is_empty() => {
                let noted = self.noted.lock().unwrap();
                let sent = noted.sent.iter().filter(|(to, _)| to == run);
                inbox = sent.map(|(_, message)| message.clone()).collect();
            }
            D::TakesAtOnce if inbox.len() > 2 => drop(inbox.remove(1)),
            D::TakesThoughRefused => {
                let noted = self.noted.lock().unwrap();
                inbox.retain(|message| !noted.taken.contains(&message.id));
            }
            _ => {}
        }
        Ok(inbox)
    }

    fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        match self.defect {
            D::NeverWakes => InboxWatches::default().watch(run),
            // The second one to watch replaces the first.
            D::WakesOne if !self.noted.lock().unwrap().claimed.insert(run.clone()) => {
                self.watches.watch(run)
            }
            D::WakesOne => InboxWatches::default().watch(run),
            _ => self.sound.watch_inbox(run),
        }
    }
}

#[async_trait]
impl Erasures for Defective {
    async fn erase(&self, run: &RunId, seq: u64) -> Result<Vec<RunId>, LogError> {
        match self.defect {
            D::ErasesNothing => Ok(Vec::new()),
            D::ErasesUnknowingly => self.sound.erase(run, seq).await.map(|_| Vec::new()),
            D::ErasesForAWriter => match self.sound.erase(run, seq).await {
                Err(LogError::Claimed(_)) => Ok(Vec::new()),
                erased => erased,
            },
            _ => self.sound.erase(run, seq).await,
        }
    }

    async fn erasures(&self) -> Result<Option<u64>, LogError> {
        self.sound.erasures().await
    }
}
