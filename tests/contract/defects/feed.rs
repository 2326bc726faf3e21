//! Event logs that break one promise of the feed each.

use std::sync::Arc;

use async_trait::async_trait;
use backstop::MemoryLog;
use backstop_event_log::{
    Cursor, EventFeed, EventFilter, EventLog, EventWatch, EventWatches, FeedPage, LogError, Ports,
};
use layer0::Timestamp;

super::defects! {
    AcceptsAnyMark => refuses_a_cursor_of_another_log,
    AcceptsAnyNumber => refuses_a_cursor_behind_the_end,
    BringsWhatWasErased => brings_what_was_erased_as_such,
    EndsWithThePage => brings_more_than_a_page,
    GoesOnBehindThePage => goes_on_behind_any_cursor,
    IgnoresFamilies => brings_the_events_of_some_types,
    IgnoresRuns => brings_the_events_of_one_run,
    IgnoresSessions => brings_the_events_of_one_session,
    IgnoresTypes => brings_the_events_of_some_types,
    LooksAtAll => passes_over_what_is_not_wanted,
    LosesTheTime => brings_events_as_they_were_appended,
    NeverWakes => wakes_each_follower,
    NowIsTheStart => begins_at_the_moment_it_is_asked,
    OrdersByRun => brings_events_as_they_were_appended,
    ReadsItAllAtOnce => keeps_pages_small,
    RepeatsTheLast => brings_each_event_of_many_writers_once,
    SkipsWhatIsNew => loses_nothing_with_a_wait_that_is_dropped,
}

use Defect as D;

/// Spec: X2, W3
#[test]
fn every_defect_of_a_feed_is_noticed() {
    super::check(DEFECTS, |defect| {
        backstop_testkit::contract::feed(async move || Arc::new(Defective::new(defect)) as _)
    });
}

/// Does one thing wrong, and leaves the rest to a sound log.
struct Defective {
    defect: Defect,
    sound: MemoryLog,
}

impl Defective {
    fn new(defect: Defect) -> Self {
        Self { defect, sound: MemoryLog::new() }
    }

    /// Reads everything behind a cursor.
    async fn whole(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        let mut whole = self.sound.read_feed(filter, cursor).await?;
        while !whole.is_end {
            let page = self.sound.read_feed(filter, &whole.cursor).await?;
            whole.records.extend(page.records);
            (whole.cursor, whole.is_end) = (page.cursor, page.is_end);
        }
        Ok(whole)
    }

    async fn end(&self) -> Result<u64, LogError> {
        let end = self.sound.read_feed(&EventFilter::new(), &Cursor::now()).await?.cursor;
        Ok(end.number().unwrap_or_default())
    }
}

impl EventLog for Defective {
    fn ports(&self) -> Ports<'_> {
        self.sound.ports().feed(self)
    }
}

#[async_trait]
impl EventFeed for Defective {
    async fn read_feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        let mut wanted = filter.clone();
        match self.defect {
            D::IgnoresFamilies => wanted.types.retain(|it| !it.ends_with('*')),
            D::IgnoresRuns => wanted.run = None,
            D::IgnoresSessions => wanted.session = None,
            D::IgnoresTypes => wanted.types.clear(),
            _ => {}
        }
        let number = cursor.number();
        let from = match self.defect {
            D::AcceptsAnyMark => number.map_or(*cursor, |number| Cursor::behind(number, None)),
            D::AcceptsAnyNumber if number.is_some_and(|it| it > 0) => {
                let end = self.end().await?;
                if number > Some(end) { Cursor::now() } else { *cursor }
            }
            D::NowIsTheStart if number.is_none() => Cursor::start(),
            D::RepeatsTheLast if number.is_some_and(|it| it > 100) => {
                Cursor::behind(number.unwrap_or_default() - 1, None)
            }
            D::SkipsWhatIsNew if number.is_some_and(|it| it > 10) => Cursor::now(),
            _ => *cursor,
        };
        let mut page = self.sound.read_feed(&wanted, &from).await?;
        match self.defect {
            D::BringsWhatWasErased => {
                for it in &mut page.records {
                    if it.record.payload.text().is_none() {
                        it.record.payload = backstop_event_log::Payload::Plain("{}".into());
                    }
                }
            }
            D::EndsWithThePage => {
                page.is_end = true;
                page.cursor = self.sound.read_feed(&wanted, &Cursor::now()).await?.cursor;
            }
            D::GoesOnBehindThePage => {
                for it in &mut page.records {
                    it.cursor = page.cursor;
                }
            }
            D::LooksAtAll | D::ReadsItAllAtOnce => page = self.whole(&wanted, &from).await?,
            D::LosesTheTime => {
                for it in &mut page.records {
                    it.record.at = Timestamp::default();
                }
            }
            D::OrdersByRun => page.records.sort_by_key(|it| it.run.clone()),
            _ => {}
        }
        Ok(page)
    }

    fn watch_events(&self) -> EventWatch {
        match self.defect {
            D::NeverWakes => EventWatches::default().watch(),
            _ => self.sound.watch_events(),
        }
    }
}
