//! Event logs that break one promise about transcripts each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop::MemoryLog;
use backstop_event_log::{Erasures, EventLog, Log, LogError, Ports, TranscriptPart, Transcripts};
use backstop_testkit::contract::Suite;
use layer0::id::RunId;

super::defects! {
    IgnoresTheErasures => drops_a_part_that_is_older_than_an_erasure,
    KeepsAnyHead => drops_the_part_of_another_head,
    KeepsErasedText => erases_a_part_with_a_text_of_its_run,
    KeepsTheFirst => replaces_an_earlier_part,
    KeepsTheHeadItHad => reads_no_part_of_a_run_that_went_on,
    OldestFirst => reads_back_what_is_kept,
    SkipsMissingParts => ends_before_a_missing_part,
}

use Defect as D;

/// Spec: D9, M7
#[test]
fn every_defect_of_transcripts_is_noticed() {
    super::check(DEFECTS, suite);
}

fn suite(defect: Defect) -> Suite {
    backstop_testkit::contract::transcripts(async move || {
        Arc::new(Defective { defect, sound: MemoryLog::new(), kept: Mutex::default() }) as _
    })
}

/// Keeps parts by itself, with one thing wrong, and leaves the rest to a sound log.
struct Defective {
    defect: Defect,
    sound: MemoryLog,
    kept: Mutex<BTreeMap<RunId, TranscriptPart>>,
}

impl Defective {
    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    async fn has_head(&self, part: &TranscriptPart) -> Result<bool, LogError> {
        let summary = self.sound.summary(&part.run).await?;
        Ok(summary.is_some_and(|summary| summary.head == part.head))
    }
}

impl EventLog for Defective {
    fn ports(&self) -> Ports<'_> {
        self.sound.ports().erasures(self).transcripts(self)
    }
}

#[async_trait]
impl Erasures for Defective {
    async fn erasures(&self) -> Result<Option<u64>, LogError> {
        self.sound.erasures().await
    }

    async fn erase(&self, run: &RunId, seq: u64) -> Result<Vec<RunId>, LogError> {
        if !self.is(D::KeepsErasedText) {
            self.kept.lock().unwrap().remove(run);
        }
        self.sound.erase(run, seq).await
    }
}

#[async_trait]
impl Transcripts for Defective {
    async fn transcript(&self, until: &RunId) -> Result<Vec<TranscriptPart>, LogError> {
        let kept = self.kept.lock().unwrap().clone();
        let (mut parts, mut next) = (Vec::new(), Some(until.clone()));
        while let Some(run) = next.take() {
            let Some(part) = kept.get(&run) else {
                if self.is(D::SkipsMissingParts) && parts.is_empty() {
                    parts.extend(kept.values().next().cloned());
                }
                break;
            };
            let is_any = self.is(D::KeepsTheHeadItHad) || self.is(D::KeepsAnyHead);
            if !is_any && !self.has_head(part).await? {
                break;
            }
            next.clone_from(&part.follows);
            parts.push(part.clone());
        }
        if self.is(D::OldestFirst) {
            parts.reverse();
        }
        Ok(parts)
    }

    async fn keep_transcript(
        &self,
        parts: Vec<TranscriptPart>,
        erasures: u64,
    ) -> Result<(), LogError> {
        if self.erasures().await? != Some(erasures) && !self.is(D::IgnoresTheErasures) {
            return Ok(());
        }
        for part in parts {
            if !self.has_head(&part).await? && !self.is(D::KeepsAnyHead) {
                continue;
            }
            let mut kept = self.kept.lock().unwrap();
            if !(self.is(D::KeepsTheFirst) && kept.contains_key(&part.run)) {
                kept.insert(part.run.clone(), part);
            }
        }
        Ok(())
    }
}
