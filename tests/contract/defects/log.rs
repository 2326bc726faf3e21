//! Event logs that break one promise each.

mod inbox;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop::MemoryLog;
use backstop_event_log::{
    AttemptFilter, Batch, Claim, Erasures, EventLog, FailedAttempts, Inbox, InboxMessage,
    InboxRequest, InboxWatch, InboxWatches, Log, LogError, OpenApproval, Payload, Ports, Record,
    RunFilter, RunSummary, Runs,
};
use backstop_testkit::contract::{self, Suite};
use layer0::Timestamp;
use layer0::event::{Actor, Hash};
use layer0::id::{RunId, SessionId};

super::defects! {
    AcceptsRequestsAfterTheEnd => accepts_requests_while_the_run_is_open,
    AcceptsRequestsBeforeTheStart => accepts_requests_while_the_run_is_open,
    BeginsARunAgain => refuses_a_run_that_exists,
    BranchesAreInTheWay => lets_runs_that_are_dispatched_together_be_open_at_once,
    ChecksAndThenWrites => takes_one_of_many_appends,
    ClaimIsGivenTwice => a_claim_ends_when_it_is_dropped,
    ClaimNeverEnds => a_claim_ends_when_it_is_dropped,
    ClaimOfAStartIsNone => a_run_that_begins_is_claimed,
    ClaimsCollide => gives_a_run_to_one_of_many_claims,
    ClaimsWhatIsNot => has_no_claim_for_a_run_it_has_not,
    CountsAttemptsOfAnyCode => counts_failed_attempts,
    CountsAttemptsOfAnyRun => counts_failed_attempts,
    CountsAttemptsOfAnyTime => counts_failed_attempts,
    CountsAttemptsOfNoFamily => counts_failed_attempts,
    CountsAttemptsOfWholeDays => counts_failed_attempts,
    CountsRunsForAttempts => counts_failed_attempts,
    CutsLongText => keeps_what_is_appended,
    CutsNames => keeps_runs_apart,
    DecidesBehindACancellation => refuses_decisions_behind_a_cancellation,
    DropsWhatCameTooLate => keeps_what_a_run_was_told_too_late,
    EndsTheSessionWithADispatchedRun => lets_a_dispatched_run_share_the_session,
    ErasesForAWriter => erases_nothing_it_cannot,
    ErasesNothing => erases_what_an_event_says,
    ErasesTheHash => verifies_what_was_erased,
    ErasesTheTime => verifies_a_copy_without_its_last_text,
    ErasesUnknowingly => names_the_runs_that_hold_a_copy,
    EpochStays => raises_the_epoch_with_each_claim,
    FailsForAnUnknownRun => has_nothing_of_a_run_it_was_not_given,
    FencesBySeqAlone => refuses_a_writer_that_was_overtaken,
    FollowsTheOldest => refuses_a_run_that_does_not_follow_the_last,
    FollowsABranch => lets_runs_that_are_dispatched_together_be_open_at_once,
    ForgetsACopysSession => a_copied_run_has_a_session_of_its_own,
    ForgetsOpenBranches => lets_runs_that_are_dispatched_together_be_open_at_once,
    ForkClosesItsParent => a_copied_run_has_a_session_of_its_own,
    IgnoresAgents => lists_the_runs_of_one_agent,
    IgnoresReasons => lists_the_runs_with_a_reason,
    IgnoresStates => lists_the_runs_in_some_states,
    IgnoresTheLimit => lists_at_most_as_many_as_asked,
    IgnoresTimes => lists_the_runs_of_some_time,
    InboxIsShared => keeps_the_inboxes_of_runs_apart,
    InboxNewestFirst => keeps_every_field_of_a_request,
    KeepsRequestsAfterTheEnd => drops_requests_at_the_end_of_a_run,
    LastRootByTime => finds_the_last_root_of_a_session,
    LastRootIsStale => finds_the_last_root_of_a_session,
    LetsAnyRunFollow => refuses_a_run_that_does_not_follow_the_last,
    LimitsBeforeItFilters => lists_at_most_as_many_as_asked,
    ListsAllRuns => lists_the_runs_of_one_session,
    ListsAnyLabel => lists_the_runs_of_a_label,
    ListsByOneLabel => lists_the_runs_of_a_label,
    ListsByName => lists_runs_newest_first,
    ListsDispatchedRuns => lists_the_runs_that_none_dispatched,
    ListsOldestFirst => lists_runs_newest_first,
    ListsTheStart => lists_runs_as_they_stand,
    ListsUntilTheEnd => lists_the_runs_of_some_time,
    LetsAnyBranchBegin => lets_runs_that_are_dispatched_together_be_open_at_once,
    LosesCausedBy => keeps_every_field_of_a_record,
    LosesBranchOf => lets_runs_that_are_dispatched_together_be_open_at_once,
    LosesLabels => keeps_every_field_of_a_summary,
    LosesFollows => keeps_every_field_of_a_summary,
    LosesOtherRuns => keeps_the_appends_of_many_runs,
    LosesParent => lets_a_dispatched_run_share_the_session,
    LosesTerms => keeps_every_field_of_a_summary,
    LosesTheActor => keeps_every_field_of_a_record,
    LosesTheIncrease => a_reopened_run_is_open_until_it_ends_again,
    LosesSettlements => keeps_what_people_said_of_a_call,
    LosesTheOutput => keeps_every_field_of_a_request,
    LosesUsage => keeps_every_field_of_a_summary,
    NeverWakes => wakes_each_watch_of_the_run,
    NeverTakes => takes_a_request_with_the_append_that_records_it,
    ReadsAfterTheSeq => reads_records_from_a_seq_on,
    ReadsAll => reads_records_from_a_seq_on,
    ReadsOneState => lists_the_runs_in_some_states,
    RefusesToReopenBelow => a_dispatched_run_is_reopened_beside_others,
    ReopensBesideAFollower => reopens_or_follows_never_both,
    ReopensThoughFollowed => refuses_to_reopen_a_run_that_is_followed,
    RefusesImports => imports_a_run_without_the_one_before,
    RefusesDispatchedRuns => lets_a_dispatched_run_share_the_session,
    ReplacesControlCharacters => keeps_every_field_of_a_record,
    RequestIsFromNowhere => keeps_every_field_of_a_request,
    SettlesAgainOnceTaken => settles_a_call_once,
    SettlesAgainWhileItWaits => settles_a_call_once,
    SettlesOpenRunsOnly => keeps_what_people_said_of_a_call,
    SettlesOneCallARun => settles_a_call_once,
    SessionsRace => begins_one_of_many_runs_of_a_session,
    SummaryIsStale => keeps_what_is_appended,
    TakesAFamilyForACode => lists_the_runs_with_a_reason,
    TakesAPrefixForAnId => lists_the_runs_whose_id_begins_so,
    TakesAnyPartOfAnId => lists_the_runs_whose_id_begins_so,
    TakesAtOnce => takes_a_request_with_the_append_that_records_it,
    TakesThoughRefused => a_refused_batch_changes_nothing,
    TearsABatch => writes_a_dropped_append_whole_or_not_at_all,
    TwoRunsASession => has_one_open_run_a_session,
    WakesOne => wakes_each_watch_of_the_run,
    WritesAfterAGap => refuses_a_gap,
    WritesThoughRefused => refuses_a_second_writer,
}

use Defect as D;

/// Spec: D1, D2, D4, D7, D8, D12
#[test]
fn every_defect_of_a_log_is_noticed() {
    super::check(DEFECTS, suite);
}

pub(super) fn suite(defect: Defect) -> Suite {
    let erasable = async move || Arc::new(Defective::new(defect)) as _;
    let log = async move || Arc::new(Defective::new(defect)) as _;
    contract::event_log(log).and(contract::erasable_event_log(erasable))
}

/// Spec: D15. A log that cannot erase keeps the rest of the contract.
#[tokio::test]
async fn event_logs_need_no_erasure() {
    contract::event_log(async || Arc::new(Defective::new(D::ErasesNothing)) as _).check().await;
}

/// Does one thing wrong, and leaves the rest to a sound log.
struct Defective {
    defect: Defect,
    sound: MemoryLog,
    noted: Mutex<Noted>,
    watches: InboxWatches,
}

fn change(record: &mut Record, change: impl FnOnce(&mut String)) {
    if let Payload::Plain(text) | Payload::Salted(_, text) = &mut record.payload {
        change(text);
    }
}

/// What a defect needs to know.
#[derive(Default)]
struct Noted {
    /// The summaries before the last append, by run.
    before: BTreeMap<RunId, RunSummary>,
    /// The summaries of the first append, by run.
    starts: BTreeMap<RunId, RunSummary>,
    /// The rows that were taken by appends that were refused.
    taken: BTreeSet<u64>,
    /// The requests that runs were sent, whatever became of them.
    sent: Vec<(RunId, InboxMessage)>,
    /// The newest epoch, by run.
    epochs: BTreeMap<RunId, u64>,
    /// The batch that is being written.
    slot: Option<Batch>,
    claimed: BTreeSet<RunId>,
    over: BTreeSet<RunId>,
}

impl Defective {
    fn new(defect: Defect) -> Self {
        let (sound, noted) = (MemoryLog::new(), Mutex::default());
        Self { defect, sound, noted, watches: InboxWatches::default() }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn shown(&self, mut summary: RunSummary) -> RunSummary {
        let noted = self.noted.lock().unwrap();
        match self.defect {
            D::LosesBranchOf => summary.branch_of = None,
            D::LosesFollows => summary.follows = None,
            D::LosesLabels => summary.labels = Arc::default(),
            D::LosesParent => summary.parent = None,
            D::LosesTerms => summary.terms = Default::default(),
            D::LosesTheIncrease => summary.raised = None,
            D::LosesUsage => summary.usage.tool_calls = 0,
            D::ForgetsACopysSession if summary.session.as_str().starts_with("ses_") => {
                summary.session = "s".into();
            }
            D::SummaryIsStale => {
                summary = noted.before.get(&summary.run).cloned().unwrap_or(summary);
            }
            _ => {}
        }
        summary
    }

    fn record(&self, mut record: Record) -> Record {
        match self.defect {
            D::CutsLongText => change(&mut record, |text| {
                text.truncate(text.floor_char_boundary(1_000));
            }),
            D::ErasesTheHash if record.payload.text().is_none() => record.hash = Hash::default(),
            D::ErasesTheTime if record.payload.text().is_none() => record.at = Timestamp::default(),
            D::LosesCausedBy => record.caused_by = None,
            D::LosesTheActor => record.actor = Actor::Runtime,
            D::ReplacesControlCharacters => change(&mut record, |text| {
                *text = text.replace("\\u0000", " ");
            }),
            _ => {}
        }
        record
    }

    /// Makes the sound log take a batch that it refuses, as if the run were another's.
    async fn force(&self, batch: Batch) -> Result<(), LogError> {
        let mut forced = batch;
        forced.summary.parent = Some("any".into());
        self.sound.append(forced).await
    }

    async fn write(&self, mut batch: Batch) -> Result<(), LogError> {
        let is_start = batch.records[0].seq == 1;
        if self.is(D::FencesBySeqAlone) {
            let epochs = &self.noted.lock().unwrap().epochs;
            batch.epoch = epochs.get(&batch.run).copied().unwrap_or(batch.epoch);
        }
        match self.defect {
            D::NeverTakes => batch.taken.clear(),
            D::RefusesImports if batch.is_import => return Err(LogError::NotFound(batch.run)),
            D::EndsTheSessionWithADispatchedRun | D::RefusesDispatchedRuns
                if is_start && batch.summary.parent.is_some() =>
            {
                let session = batch.summary.session.clone();
                if self.is(D::RefusesDispatchedRuns) {
                    return Err(LogError::session_busy(session, batch.run));
                }
                batch.summary.follows = batch.summary.parent.take();
                return match self.sound.append(batch.clone()).await {
                    Err(LogError::SessionBusy { .. }) => self.force(batch).await,
                    written => written,
                };
            }
            D::BranchesAreInTheWay if is_start => batch.summary.branch_of = None,
            D::RefusesToReopenBelow
                if batch.records.iter().any(|it| it.event_type == "run.reopened")
                    && batch.summary.parent.is_some() =>
            {
                return Err(LogError::session_busy(batch.summary.session, batch.run));
            }
            D::ForkClosesItsParent
                if batch.records.iter().any(|it| it.event_type == "run.forked") =>
            {
                self.noted.lock().unwrap().over.insert("run_1".into());
            }
            D::ChecksAndThenWrites => {
                let known = self.sound.summary(&batch.run).await?;
                let fits = known.is_none_or(|it| it.last_seq + 1 == batch.records[0].seq);
                tokio::task::yield_now().await;
                return match self.sound.append(batch).await {
                    Err(LogError::Conflict { .. }) if fits => Ok(()),
                    written => written,
                };
            }
            D::SessionsRace if is_start => {
                let last = self.sound.last_root(&batch.summary.session).await?;
                tokio::task::yield_now().await;
                return match self.sound.append(batch.clone()).await {
                    Err(LogError::SessionBusy { .. }) if last.is_none() => self.force(batch).await,
                    written => written,
                };
            }
            D::TearsABatch if batch.records.len() > 1 && !is_start => {
                let rest = batch.records.split_off(1);
                let mut first = batch.clone();
                let record = &first.records[0];
                (first.summary.last_seq, first.summary.head) = (record.seq, record.hash);
                self.sound.append(first).await?;
                tokio::task::yield_now().await;
                batch.records = rest;
                return self.sound.append(batch).await;
            }
            D::LosesOtherRuns => {
                self.noted.lock().unwrap().slot = Some(batch);
                tokio::task::yield_now().await;
                let Some(batch) = self.noted.lock().unwrap().slot.take() else { return Ok(()) };
                return self.sound.append(batch).await;
            }
            D::WritesAfterAGap => {
                let last = self.sound.summary(&batch.run).await?.map_or(0, |it| it.last_seq);
                if batch.records[0].seq > last + 1 {
                    return Ok(());
                }
            }
            D::BeginsARunAgain if is_start => {
                return match self.sound.append(batch).await {
                    Err(LogError::Conflict { seq: 1, .. }) => Ok(()),
                    written => written,
                };
            }
            _ => {}
        }
        let result = self.sound.append(batch.clone()).await;
        match (self.defect, &result) {
            (D::TakesThoughRefused, Err(_)) => {
                self.noted.lock().unwrap().taken.extend(batch.taken);
                result
            }
            (D::WritesThoughRefused, Err(LogError::Conflict { .. })) => Ok(()),
            (D::TwoRunsASession, Err(LogError::SessionBusy { run, .. })) => {
                let other = self.sound.summary(run).await?;
                if other.is_some_and(|it| it.is_open()) { self.force(batch).await } else { result }
            }
            (
                D::ReopensBesideAFollower | D::ReopensThoughFollowed,
                Err(LogError::Followed { by, .. }),
            ) => {
                let is_open = self.sound.summary(by).await?.is_some_and(|it| it.is_open());
                let forces = is_open == self.is(D::ReopensBesideAFollower);
                if forces { self.force(batch).await } else { result }
            }
            (D::ForgetsOpenBranches, Err(LogError::SessionBusy { run, .. })) => {
                let other = self.sound.summary(run).await?;
                let is_branch = other.is_some_and(|it| it.branch_of.is_some());
                if is_branch { self.force(batch).await } else { result }
            }
            (D::LetsAnyBranchBegin, Err(LogError::SessionBusy { .. })) => {
                if batch.summary.branch_of.is_some() { self.force(batch).await } else { result }
            }
            (D::LetsAnyRunFollow, Err(LogError::SessionBusy { run, .. })) => {
                let other = self.sound.summary(run).await?;
                if other.is_some_and(|it| !it.is_open()) { self.force(batch).await } else { result }
            }
            (D::FollowsTheOldest, Err(LogError::SessionBusy { .. })) => {
                if batch.summary.follows == Some("run_1".into()) {
                    return self.force(batch).await;
                }
                result
            }
            _ => result,
        }
    }
}

impl EventLog for Defective {
    fn ports(&self) -> Ports<'_> {
        self.sound.ports().log(self).runs(self).inbox(self).erasures(self)
    }
}

#[async_trait]
impl Log for Defective {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        if self.is(D::ClaimNeverEnds) && !self.noted.lock().unwrap().claimed.insert(run.clone()) {
            return Err(LogError::Claimed(run.clone()));
        }
        match self.sound.claim(run).await {
            Err(LogError::NotFound(_)) if self.is(D::ClaimsWhatIsNot) => {
                Ok(self.sound.claim_new(run))
            }
            Err(LogError::Claimed(_)) if self.is(D::ClaimIsGivenTwice) => Ok(Claim::new(2, ())),
            Ok(claim) if self.is(D::ClaimsCollide) => {
                let epoch = claim.epoch();
                drop(claim);
                tokio::task::yield_now().await;
                Ok(Claim::new(epoch, ()))
            }
            Ok(claim) if self.is(D::EpochStays) => Ok(Claim::new(Claim::FIRST, claim)),
            Ok(claim) => {
                let mut noted = self.noted.lock().unwrap();
                noted.epochs.insert(run.clone(), claim.epoch());
                Ok(claim)
            }
            refused => refused,
        }
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        match self.defect {
            D::ClaimOfAStartIsNone => Claim::new(Claim::FIRST, ()),
            _ => self.sound.claim_new(run),
        }
    }

    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        let (run, after) = (batch.run.clone(), batch.summary.clone());
        let before = self.sound.summary(&run).await?;
        self.write(batch).await?;
        let mut noted = self.noted.lock().unwrap();
        noted.starts.entry(run.clone()).or_insert(after);
        noted.before.extend(before.map(|before| (run, before)));
        Ok(())
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        let known = self.sound.summary(run).await?;
        if known.is_none() && self.is(D::FailsForAnUnknownRun) {
            return Err(LogError::NotFound(run.clone()));
        }
        Ok(known.map(|summary| self.shown(summary)))
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        let name = run.as_str().split('\'').next().unwrap_or_default();
        let run = if self.is(D::CutsNames) { &name.into() } else { run };
        let from = match self.defect {
            D::ReadsAfterTheSeq if from_seq > 1 => from_seq + 1,
            D::ReadsAll => 1,
            _ => from_seq,
        };
        let records = self.sound.records(run, from).await?;
        Ok(records.into_iter().map(|record| self.record(record)).collect())
    }
}

#[async_trait]
impl Runs for Defective {
    async fn failed_attempts(
        &self,
        filter: &AttemptFilter,
    ) -> Result<Option<Vec<FailedAttempts>>, LogError> {
        let mut sound = filter.clone();
        match self.defect {
            D::CountsAttemptsOfAnyCode => sound.code = None,
            D::CountsAttemptsOfAnyRun => sound.runs = None,
            D::CountsAttemptsOfAnyTime => (sound.from, sound.to) = (None, None),
            D::CountsAttemptsOfNoFamily => sound.code = sound.code.map(|it| it.replace('*', "")),
            D::CountsAttemptsOfWholeDays => sound.from = sound.from.map(Timestamp::start_of_day),
            _ => {}
        }
        let log: &dyn EventLog = &self.sound;
        let mut counts = log.failed_attempts(sound).await?;
        if self.is(D::CountsRunsForAttempts) {
            counts.iter_mut().for_each(|count| count.attempts = 1);
        }
        Ok(Some(counts))
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        let mut sound = filter.clone();
        match self.defect {
            D::IgnoresAgents => sound.agent = None,
            D::IgnoresReasons => sound.reason = None,
            D::IgnoresStates => sound.states.clear(),
            D::IgnoresTheLimit => sound.limit = None,
            D::IgnoresTimes => (sound.from, sound.to) = (None, None),
            D::LimitsBeforeItFilters | D::ListsAllRuns => sound.session = None,
            D::ListsAnyLabel => sound.labels.clear(),
            D::ListsByOneLabel => sound.labels = sound.labels.into_iter().rev().take(1).collect(),
            D::ListsDispatchedRuns => sound.roots = false,
            D::ListsUntilTheEnd => sound.to = sound.to.map(|to| to.after(Duration::from_millis(1))),
            D::ReadsOneState => sound.states.truncate(1),
            D::TakesAFamilyForACode => sound.reason = sound.reason.map(|it| it.replace('*', "")),
            D::TakesAPrefixForAnId | D::TakesAnyPartOfAnId => sound.id_prefix = None,
            _ => {}
        }
        let mut runs = self.sound.runs(sound).await?;
        match self.defect {
            D::LimitsBeforeItFilters => {
                runs.retain(|run| filter.session.as_ref().is_none_or(|it| *it == run.session));
            }
            D::TakesAPrefixForAnId => {
                runs.retain(|run| {
                    filter.id_prefix.as_deref().is_none_or(|it| it == run.run.as_str())
                });
            }
            D::TakesAnyPartOfAnId => {
                runs.retain(|run| {
                    filter.id_prefix.as_deref().is_none_or(|it| run.run.as_str().contains(it))
                });
            }
            D::ListsByName => runs.sort_by_key(|run| Reverse(run.run.clone())),
            D::ListsOldestFirst => runs.reverse(),
            D::ListsTheStart => {
                let noted = self.noted.lock().unwrap();
                runs = runs.iter().filter_map(|run| noted.starts.get(&run.run).cloned()).collect();
            }
            _ => {}
        }
        Ok(runs.into_iter().map(|summary| self.shown(summary)).collect())
    }

    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError> {
        if self.is(D::LastRootByTime) || self.is(D::FollowsABranch) {
            let filter = RunFilter::new().session(session.clone());
            let runs = self.sound.runs(filter).await?;
            let follows_any = self.is(D::FollowsABranch);
            let is_root = |run: &RunSummary| run.parent.is_none();
            let is_last =
                |run: &RunSummary| is_root(run) && (follows_any || run.branch_of.is_none());
            return Ok(runs.into_iter().find(is_last));
        }
        let last = self.sound.last_root(session).await?.map(|summary| self.shown(summary));
        let noted = self.noted.lock().unwrap();
        Ok(match last {
            Some(last) if self.is(D::LastRootIsStale) => noted.starts.get(&last.run).cloned(),
            Some(last) if noted.over.contains(&last.run) => None,
            last => last,
        })
    }
}
