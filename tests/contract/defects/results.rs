//! Result stores that break one promise each.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop::MemoryResultStore;
use backstop_error_store::{
    Hold, Lookup, NewResult, Origin, Pruned, ResultEntry, ResultFilter, ResultRecord, ResultStore,
    Retention, StoreError,
};
use backstop_testkit::contract::Suite;
use layer0::Timestamp;
use layer0::id::{ResultId, SessionId};

super::defects! {
    AnySessionReads => is_its_sessions,
    BodyIsTrimmed => keeps_any_text,
    CopyReplacesWhatIsThere => keeps_copies,
    CutsLongBodies => keeps_a_result,
    ExpiredIsMissing => prunes_by_age,
    ExpiredReplacesWhatIsThere => keeps_what_expired,
    ForgetsAnExpiredCopy => keeps_what_expired,
    ForgetsCopies => keeps_copies,
    HoldsNothing => keeps_what_is_held,
    HoldsTheFirstRun => keeps_what_is_held,
    IdsWithoutATime => keeps_a_result,
    IgnoresAge => prunes_by_age,
    IgnoresTheFilter => lists_what_is_asked_for,
    IgnoresTheLimit => lists_newest_first,
    IgnoresTimes => lists_what_is_asked_for,
    ListsOldestFirst => lists_newest_first,
    LosesOneOfMany => stores_many_at_once,
    LosesTheCall => keeps_a_result,
    NeverPrunes => prunes_by_age,
    OneIdForTheSame => keeps_a_result,
    OthersSeeWhatExpired => keeps_what_expired,
    PrunesAll => prunes_by_age,
    PrunesWithoutBytes => prunes_the_oldest,
    PutsInTwoSteps => stores_a_dropped_result_whole_or_not_at_all,
    ReplacesControlCharacters => keeps_any_text,
    TakesAPrefixForAnId => lists_what_is_asked_for,
}

use Defect as D;

/// Spec: L1, L2, S10
#[test]
fn every_defect_of_a_result_store_is_noticed() {
    super::check(DEFECTS, suite);
}

fn suite(defect: Defect) -> Suite {
    backstop_testkit::contract::result_store(async move || {
        let (sound, noted) = (MemoryResultStore::new(), Mutex::default());
        Arc::new(Defective { defect, sound, noted }) as _
    })
}

/// Does one thing wrong, and leaves the rest to a sound store.
struct Defective {
    defect: Defect,
    sound: MemoryResultStore,
    noted: Mutex<Noted>,
}

/// What a defect needs to know.
#[derive(Default)]
struct Noted {
    bodies: Vec<(String, ResultId)>,
    /// A copy that came after another of its id.
    replaced: Option<ResultRecord>,
    expired: Option<ResultId>,
    puts: u32,
    is_held: bool,
}

impl Defective {
    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn shown(&self, mut record: ResultRecord) -> ResultRecord {
        match self.defect {
            D::BodyIsTrimmed => record.body = record.body.trim().into(),
            D::CopyReplacesWhatIsThere => {
                return self.noted.lock().unwrap().replaced.clone().unwrap_or(record);
            }
            D::CutsLongBodies => {
                record.body = record.body.chars().take(10_000).collect::<String>().into();
            }
            D::LosesTheCall => {
                let Origin { at, session, run, tool, .. } = record.origin;
                record.origin = Origin::new(at, session, run, "", tool);
            }
            D::ReplacesControlCharacters => record.body = record.body.replace('\0', " ").into(),
            _ => {}
        }
        record
    }
}

#[async_trait]
impl ResultStore for Defective {
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        let body = result.body().to_string();
        let puts = {
            let mut noted = self.noted.lock().unwrap();
            noted.puts += 1;
            noted.puts
        };
        match self.defect {
            D::LosesOneOfMany if puts == 20 => return Ok("res_20260101_000000_aaaaaa".into()),
            D::OneIdForTheSame => {
                let noted = self.noted.lock().unwrap();
                if let Some((_, id)) = noted.bodies.iter().find(|(known, _)| *known == body) {
                    return Ok(id.clone());
                }
            }
            D::PutsInTwoSteps => {
                let id = ResultId::from(format!("res_20260101_000000_{puts:06}"));
                let origin = result.origin().clone();
                self.sound.keep(ResultRecord::new(id.clone(), origin.clone(), "")).await?;
                tokio::task::yield_now().await;
                self.sound.put(result).await?;
                return Ok(id);
            }
            _ => {}
        }
        let id = self.sound.put(result).await?;
        self.noted.lock().unwrap().bodies.push((body, id.clone()));
        Ok(if self.is(D::IdsWithoutATime) { "res_1".into() } else { id })
    }

    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError> {
        if self.is(D::ForgetsCopies) {
            return Ok(());
        }
        self.noted.lock().unwrap().replaced = Some(result.clone());
        self.sound.keep(result).await
    }

    async fn keep_expired(&self, session: &SessionId, id: &ResultId) -> Result<(), StoreError> {
        self.noted.lock().unwrap().expired = Some(id.clone());
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
        id: &ResultId,
    ) -> Result<Lookup<ResultRecord>, StoreError> {
        let found = match self.defect {
            D::AnySessionReads => self.sound.find(id).await?,
            _ => self.sound.get(session, id).await?,
        };
        let is_expired = self.noted.lock().unwrap().expired.as_ref() == Some(id);
        match found {
            Lookup::Expired if self.is(D::ExpiredIsMissing) => Ok(Lookup::Missing),
            Lookup::Missing if self.is(D::OthersSeeWhatExpired) && is_expired => {
                Ok(Lookup::Expired)
            }
            found => Ok(found.map(|record| self.shown(record))),
        }
    }

    async fn find(&self, id: &ResultId) -> Result<Lookup<ResultRecord>, StoreError> {
        Ok(self.sound.find(id).await?.map(|record| self.shown(record)))
    }

    async fn list(&self, filter: ResultFilter) -> Result<Vec<ResultEntry>, StoreError> {
        let mut sound = filter.clone();
        match self.defect {
            D::IgnoresTheFilter => (sound.session, sound.run, sound.tool) = (None, None, None),
            D::IgnoresTheLimit => sound.limit = None,
            D::IgnoresTimes => (sound.from, sound.to) = (None, None),
            D::TakesAPrefixForAnId => sound.id_prefix = None,
            _ => {}
        }
        let mut entries = self.sound.list(sound).await?;
        match self.defect {
            D::ListsOldestFirst => entries.reverse(),
            D::TakesAPrefixForAnId => {
                let prefix = filter.id_prefix.as_deref();
                entries.retain(|it| prefix.is_none_or(|prefix| prefix == it.id.as_str()));
            }
            _ => {}
        }
        Ok(entries)
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        let mut retention = retention;
        match self.defect {
            D::IgnoresAge => retention.max_age = None,
            D::NeverPrunes => return Ok(Pruned::new(0, 0)),
            D::PrunesAll => retention = Retention::NONE.max_rows(0),
            D::PrunesWithoutBytes => retention.max_bytes = None,
            _ => {}
        }
        self.sound.prune(retention, now).await
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
