//! Memories that break one promise each.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop::Memory;
use backstop_react::{MemoryEntry, MemoryQuery, RecentMemory};
use layer0::error::BoxError;
use layer0::id::SessionId;

super::defects! {
    BeginsWithATip => begins_empty,
    DropsNonAscii => keeps_any_text,
    ForgetsAllSessions => forgets_what_a_session_left,
    ForgetsNothing => forgets_everything,
    ForgetsTheFirst => remembers_what_a_run_came_to,
    KeepsEveryAnswerOfARun => keeps_the_last_answer_of_a_run,
    MiscountsWhatItForgets => forgets_what_a_session_left,
    ReadsOnce => reading_changes_nothing,
    RemembersTheQuestionAlone => remembers_what_a_run_came_to,
    StaysEmptyAfterForgetting => forgets_everything,
    WritesRace => takes_many_writes_at_once,
    WritesInTwoSteps => writes_a_dropped_entry_whole_or_not_at_all,
}

use Defect as D;

/// Spec: M1
#[test]
fn every_defect_of_a_memory_is_noticed() {
    super::check(DEFECTS, |defect| {
        backstop_testkit::contract::memory(async move || {
            let (sound, noted) = (RecentMemory::new(64), Mutex::default());
            Arc::new(Defective { defect, sound, noted }) as _
        })
    });
}

/// Spec: M1
#[tokio::test]
async fn the_recent_memory_keeps_the_contract() {
    backstop_testkit::contract::memory(async || Arc::new(RecentMemory::new(8)) as _).check().await;
}

/// Does one thing wrong, and leaves the rest to a sound memory.
struct Defective {
    defect: Defect,
    sound: RecentMemory,
    noted: Mutex<Noted>,
}

/// What a defect needs to know.
#[derive(Default)]
struct Noted {
    slot: Option<MemoryEntry>,
    has_forgotten: bool,
}

#[async_trait]
impl Memory for Defective {
    async fn read(&self, query: MemoryQuery) -> Result<Vec<String>, BoxError> {
        let session = query.session.clone();
        let mut entries = self.sound.read(query).await?;
        match self.defect {
            D::BeginsWithATip if entries.is_empty() => entries.push("be kind".into()),
            D::ForgetsTheFirst => drop(entries.pop()),
            D::ReadsOnce => drop(self.sound.forget(Some(&session)).await?),
            _ => {}
        }
        Ok(entries)
    }

    async fn write(&self, mut entry: MemoryEntry) -> Result<(), BoxError> {
        match self.defect {
            D::DropsNonAscii => {
                entry.output =
                    entry.output.chars().filter(char::is_ascii).collect::<String>().into();
            }
            D::KeepsEveryAnswerOfARun => {
                entry.run = format!("{} {}", entry.run, entry.output).into();
            }
            D::RemembersTheQuestionAlone => entry.output = "".into(),
            D::StaysEmptyAfterForgetting if self.noted.lock().unwrap().has_forgotten => {
                return Ok(());
            }
            D::WritesRace => {
                self.noted.lock().unwrap().slot = Some(entry);
                tokio::task::yield_now().await;
                let Some(entry) = self.noted.lock().unwrap().slot.take() else { return Ok(()) };
                return self.sound.write(entry).await;
            }
            D::WritesInTwoSteps => {
                let mut half = entry.clone();
                half.output = "".into();
                self.sound.write(half).await?;
                tokio::task::yield_now().await;
            }
            _ => {}
        }
        self.sound.write(entry).await
    }

    async fn forget(&self, session: Option<&SessionId>) -> Result<u64, BoxError> {
        self.noted.lock().unwrap().has_forgotten = true;
        match self.defect {
            D::ForgetsAllSessions => self.sound.forget(None).await,
            D::ForgetsNothing => Ok(0),
            D::MiscountsWhatItForgets => Ok(self.sound.forget(session).await?.min(1)),
            _ => self.sound.forget(session).await,
        }
    }
}
