//! Error stores that break one promise each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop::MemoryErrorStore;
use backstop_error_store::{
    CountBy, ErrorCount, ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, Hold, Lookup, NewError,
    Origin, Pruned, Retention, StoreError, StoredError, readable,
};
use layer0::Timestamp;
use layer0::id::{ErrorId, SessionId};

super::defects! {
    AnySessionReads => is_its_sessions,
    CopyIsCounted => keeps_copies,
    CopyIsOverwritten => keeps_copies,
    CopyIsReplaced => keeps_copies,
    CountsAcrossSessions => counts_repeats,
    CountsAll => counts_what_is_asked_for,
    CountsDaysByNumber => counts_what_is_asked_for,
    CountsEachErrorOnce => counts_what_is_asked_for,
    CountsEachOnce => counts_repeats,
    ExpiredIsMissing => stores_anew,
    ExpiredReplacesWhatIsThere => keeps_what_expired,
    FirstSeenMoves => counts_repeats,
    ForgetsACopy => keeps_copies,
    ForgetsAnExpiredCopy => keeps_what_expired,
    HoldsNothing => keeps_what_is_held,
    HoldsTheFirstRun => keeps_what_is_held,
    IdsWithoutATime => makes_ids,
    IgnoresFrom => filters,
    IgnoresReason => filters,
    IgnoresRun => lists_what_a_run_met,
    IgnoresSession => filters,
    IgnoresTheLimit => lists_newest_first,
    IgnoresThePrefix => filters,
    IgnoresTool => filters,
    KnowsOneRun => lists_what_a_run_met,
    LastSeenGoesBack => counts_repeats,
    LimitsWhatItCounts => counts_what_is_asked_for,
    ListsOldestFirst => lists_newest_first,
    LosesOneOfMany => stores_many_at_once,
    LosesTheCall => keeps_an_error,
    LosesTheCode => keeps_an_error,
    NeverPrunes => prunes_by_age,
    PrunesAll => prunes_by_age,
    PrunesByFirstSeen => prunes_by_age,
    PrunesTheRecent => prunes_the_longest_unseen,
    PrunesWithoutBytes => prunes_by_bytes,
    ReadsNoFamily => filters,
    RepeatsRace => counts_repeats_at_once,
    RunIsTheFirst => lists_what_a_run_met,
    ShowsPrunedStats => counts,
    StatsCountOnce => counts,
    StoresTwice => counts_repeats,
    TearsAStore => stores_a_dropped_error_whole_or_not_at_all,
    ToIsIncluded => filters,
    TrimsText => keeps_any_text,
}

use Defect as D;

/// Spec: S1, S2, S3, S8, S10
#[test]
fn every_defect_of_an_error_store_is_noticed() {
    super::check(DEFECTS, |defect| {
        backstop_testkit::contract::error_store(async move || {
            let (sound, noted) = (MemoryErrorStore::new(), Mutex::default());
            Arc::new(Defective { defect, sound, noted }) as _
        })
    });
}

/// Does one thing wrong, and leaves the rest to a sound store.
struct Defective {
    defect: Defect,
    sound: MemoryErrorStore,
    noted: Mutex<Noted>,
}

/// What a defect needs to know.
#[derive(Default)]
struct Noted {
    /// Where each text was stored first.
    first: BTreeMap<String, StoredError>,
    /// What was stored last, with the time at which it was said to happen.
    last: BTreeMap<ErrorId, Timestamp>,
    /// The newest copy of each id.
    copies: BTreeMap<ErrorId, ErrorRecord>,
    stats: Vec<ErrorStats>,
    stored: u32,
    is_held: bool,
}

fn rebuilt(record: &ErrorRecord, at: Timestamp, call: &str, code: Option<String>) -> ErrorRecord {
    let (session, run) = (record.session().clone(), record.run().clone());
    let origin = Origin::new(at, session, run, call, Arc::clone(record.tool()));
    let id = record.id().clone();
    let (reason, summary) = (record.reason().clone(), record.summary());
    let rebuilt = ErrorRecord::of_row(id, origin, reason, code, summary, record.raw());
    rebuilt.with_occurrences(record.occurrences(), record.last_at(), record.chars_kept())
}

impl Defective {
    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn shown(&self, record: ErrorRecord) -> ErrorRecord {
        let code = record.code().map(ToString::to_string);
        let (at, call) = (record.at(), record.call_id().as_str());
        match self.defect {
            D::CopyIsOverwritten => {
                let newest = self.noted.lock().unwrap().copies.get(record.id()).cloned();
                newest.unwrap_or(record)
            }
            D::CountsEachOnce => {
                let (last, kept) = (record.last_at(), record.chars_kept());
                record.with_occurrences(1, last, kept)
            }
            D::FirstSeenMoves => rebuilt(&record, record.last_at(), call, code),
            D::LastSeenGoesBack => {
                let last = self.noted.lock().unwrap().last.get(record.id()).copied();
                let (count, kept) = (record.occurrences(), record.chars_kept());
                let last = last.unwrap_or(record.last_at());
                record.with_occurrences(count, last, kept)
            }
            D::LosesTheCall => rebuilt(&record, at, "", code),
            D::LosesTheCode => rebuilt(&record, at, call, None),
            D::TrimsText => {
                let raw = record.raw().replace("\\u0000", "").replace("\\t'", "");
                let origin =
                    Origin::new(at, record.session().clone(), record.run().clone(), call, "sql");
                let reason = record.reason().clone();
                ErrorRecord::of_row(
                    record.id().clone(),
                    origin,
                    reason,
                    code,
                    record.summary(),
                    &raw,
                )
            }
            _ => record,
        }
    }
}

#[async_trait]
impl ErrorStore for Defective {
    async fn store(&self, error: NewError) -> Result<StoredError, StoreError> {
        let (text, at) = (readable(error.raw()), error.origin().at);
        let known = self.noted.lock().unwrap().first.get(&text).cloned();
        match (self.defect, known) {
            (D::CountsAcrossSessions, Some(known)) => return Ok(known),
            (D::StoresTwice, Some(_)) => {
                let id =
                    ErrorId::from(format!("err_20260101_000000_{:06}", at.as_millis() % 999_983));
                self.sound.keep(error.into_record(id.clone())).await?;
                return Ok(StoredError::new(id, 1));
            }
            (D::RepeatsRace, known) => {
                tokio::task::yield_now().await;
                let stored = self.sound.store(error).await?;
                self.noted.lock().unwrap().first.entry(text).or_insert(stored.clone());
                let occurrences = if known.is_none() { 1 } else { stored.occurrences };
                return Ok(StoredError::new(stored.id, occurrences));
            }
            (D::TearsAStore, known) => {
                if let Some(known) = known {
                    return Ok(StoredError::new(known.id, 2));
                }
                let id = ErrorId::from("err_20260101_000000_aaaaaa");
                let torn = StoredError::new(id, 1);
                self.noted.lock().unwrap().first.insert(text.clone(), torn);
                tokio::task::yield_now().await;
            }
            (D::LosesOneOfMany, _) => {
                let count = {
                    let mut noted = self.noted.lock().unwrap();
                    noted.stored += 1;
                    noted.stored
                };
                if count == 20 {
                    let id = ErrorId::from("err_20260101_000000_aaaaaa");
                    return Ok(StoredError::new(id, 1));
                }
            }
            _ => {}
        }
        let mut stored = self.sound.store(error).await?;
        let mut noted = self.noted.lock().unwrap();
        noted.first.insert(text, stored.clone());
        noted.last.insert(stored.id.clone(), at);
        if self.is(D::IdsWithoutATime) {
            stored.id = format!("err_{}", stored.occurrences).into();
        }
        Ok(stored)
    }

    async fn keep(&self, error: ErrorRecord) -> Result<(), StoreError> {
        match self.defect {
            D::ForgetsACopy => Ok(()),
            D::CopyIsCounted => {
                let known = self.noted.lock().unwrap().first.values().next().cloned();
                let Some(known) = known else { return self.sound.keep(error).await };
                let copy = rebuilt(&error, error.at(), "c1", None);
                self.noted.lock().unwrap().last.insert(known.id, copy.at());
                Ok(())
            }
            D::CopyIsReplaced => {
                self.sound.keep(error.with_occurrences(1, Timestamp::default(), 0)).await
            }
            D::CopyIsOverwritten => {
                let (id, copy) = (error.id().clone(), error.clone());
                self.noted.lock().unwrap().copies.insert(id, copy);
                self.sound.keep(error).await
            }
            _ => self.sound.keep(error).await,
        }
    }

    async fn keep_expired(&self, session: &SessionId, id: &ErrorId) -> Result<(), StoreError> {
        match self.defect {
            D::ForgetsAnExpiredCopy => Ok(()),
            D::ExpiredReplacesWhatIsThere => {
                self.sound.prune(Retention::NONE.max_rows(0), Timestamp::default()).await?;
                self.sound.keep_expired(session, id).await
            }
            _ => self.sound.keep_expired(session, id).await,
        }
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ErrorId,
    ) -> Result<Lookup<ErrorRecord>, StoreError> {
        let found = match self.defect {
            D::AnySessionReads => self.sound.find(id).await?,
            _ => self.sound.get(session, id).await?,
        };
        if self.is(D::ExpiredIsMissing) && found.is_expired() {
            return Ok(Lookup::Missing);
        }
        Ok(found.map(|record| self.shown(record)))
    }

    async fn find(&self, id: &ErrorId) -> Result<Lookup<ErrorRecord>, StoreError> {
        Ok(self.sound.find(id).await?.map(|record| self.shown(record)))
    }

    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError> {
        let mut sound = filter.clone();
        match self.defect {
            D::IgnoresFrom => sound.from = None,
            D::IgnoresRun | D::RunIsTheFirst => sound.runs = None,
            D::IgnoresSession => sound.session = None,
            D::IgnoresTheLimit => sound.limit = None,
            D::IgnoresReason => sound.reason = None,
            D::KnowsOneRun => sound.runs.iter_mut().for_each(|runs| runs.truncate(1)),
            D::ReadsNoFamily if filter.reason.as_ref().is_some_and(|it| it.contains('*')) => {
                return Ok(Vec::new());
            }
            D::IgnoresThePrefix => sound.id_prefix = None,
            D::IgnoresTool => sound.tool = None,
            D::ToIsIncluded => {
                sound.to = filter.to.map(|to| Timestamp::from_millis(to.as_millis() + 1));
            }
            _ => {}
        }
        let mut errors = self.sound.list(sound).await?;
        match self.defect {
            D::ListsOldestFirst => errors.reverse(),
            D::RunIsTheFirst => {
                errors.retain(|error| {
                    filter.runs.as_ref().is_none_or(|runs| runs.contains(error.run()))
                });
            }
            _ => {}
        }
        Ok(errors)
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        self.noted.lock().unwrap().stats = self.sound.stats(None).await?;
        match self.defect {
            D::NeverPrunes => Ok(Pruned::new(0, 0)),
            D::PrunesAll => self.sound.prune(Retention::NONE.max_rows(0), now).await,
            D::PrunesByFirstSeen => {
                let oldest = retention.oldest(now).unwrap_or_default();
                let old = self.sound.list(ErrorFilter::new().to(oldest)).await?;
                let pruned = self.sound.prune(retention, now).await?;
                Ok(Pruned::new(u64::try_from(old.len()).unwrap().max(pruned.rows), pruned.bytes))
            }
            D::PrunesTheRecent => {
                let all = self.sound.list(ErrorFilter::new()).await?;
                let keep = usize::try_from(retention.max_rows.unwrap_or(99)).unwrap();
                let pruned = self.sound.prune(Retention::NONE.max_rows(0), now).await?;
                let left = all.into_iter().rev().take(keep);
                let rows = pruned.rows - u64::try_from(left.len()).unwrap();
                for (number, record) in left.enumerate() {
                    let raw = record.raw().to_string();
                    let origin = Origin::new(record.at(), "s", "run_1", "c1", "sql");
                    let id = format!("err_20260101_000000_00000{number}");
                    let reason = record.reason().clone();
                    let kept = ErrorRecord::of_row(id, origin, reason, None, "", &raw);
                    self.sound.keep(kept).await?;
                }
                Ok(Pruned::new(rows, pruned.bytes))
            }
            D::PrunesWithoutBytes => {
                let mut retention = retention;
                retention.max_bytes = None;
                self.sound.prune(retention, now).await
            }
            _ => self.sound.prune(retention, now).await,
        }
    }

    async fn count(&self, filter: ErrorFilter, by: CountBy) -> Result<Vec<ErrorCount>, StoreError> {
        let mut sound = filter;
        match self.defect {
            D::CountsAll => sound = ErrorFilter::new(),
            D::LimitsWhatItCounts => {
                let errors = self.sound.list(sound).await?;
                return Ok(ErrorCount::group_errors(&errors, by, None));
            }
            _ => {}
        }
        let mut counts = self.sound.count(sound, by).await?;
        match self.defect {
            D::CountsDaysByNumber => counts.sort_by_key(|it| it.occurrences),
            D::CountsEachErrorOnce => counts.iter_mut().for_each(|it| it.occurrences = it.errors),
            _ => {}
        }
        Ok(counts)
    }

    async fn stats(&self, limit: Option<u32>) -> Result<Vec<ErrorStats>, StoreError> {
        let mut stats = self.sound.stats(limit).await?;
        match self.defect {
            D::ShowsPrunedStats if !self.noted.lock().unwrap().stats.is_empty() => {
                stats = self.noted.lock().unwrap().stats.clone();
            }
            D::StatsCountOnce => stats.iter_mut().for_each(|it| it.occurrences = it.errors),
            _ => {}
        }
        Ok(stats)
    }

    fn hold(&self, session: &SessionId) -> Hold {
        let held = std::mem::replace(&mut self.noted.lock().unwrap().is_held, true);
        match self.defect {
            D::HoldsNothing => Hold::none(),
            D::HoldsTheFirstRun if held => Hold::none(),
            _ => self.sound.hold(session),
        }
    }
}
