//! Guarantees of removals while another process acts between two of their steps.

mod interrupted;
mod intruder;
mod left;
mod names;
mod store;

use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::{Cursor, EventFilter, RunWriter};
use backstop_retention::{
    Forgotten, RunShelf, delete_run, forget_session, prune_runs, prune_segments,
};
use layer0::id::ErrorId;

use self::interrupted::{Hook, Interrupted};
use self::intruder::{Intruder, OtherProcess};
use self::left::{Answer, Left};
use self::names::{Names, append, at, begin_segment, error, failed, started};

pub use self::store::{RemovalStore, RunQueue};

/// Lets another actor act before each step of each removal. A successful removal has removed all that its answer names,
/// the actor keeps what it depends on, and a refused removal has removed nothing.
///
/// The actors start, claim, copy and reopen runs, take them from a queue, follow the log, store a text, and start the
/// next segment of a subscription.
///
/// # Panics
///
/// If a guarantee does not hold.
pub async fn removals<S: RunShelf>(store: RemovalStore<S>) {
    let mut number = 0;
    for kind in [Kind::Delete, Kind::Forget, Kind::Prune, Kind::Segments] {
        for intruder in kind.intruders() {
            if *intruder == Intruder::Take && store.queue.is_none() {
                continue;
            }
            for step in 0.. {
                number += 1;
                if !check(&store, &Names::new(number), kind, *intruder, step).await {
                    assert!(step > 1, "{kind:?} has no steps");
                    break;
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Delete,
    Forget,
    Prune,
    Segments,
}

impl Kind {
    const fn intruders(self) -> &'static [Intruder] {
        match self {
            Self::Delete | Self::Forget | Self::Prune => &[
                Intruder::Begin,
                Intruder::Claim,
                Intruder::Follow,
                Intruder::Fork,
                Intruder::Reopen,
                Intruder::Store,
                Intruder::Take,
            ],
            Self::Segments => &[Intruder::Follow, Intruder::Roll],
        }
    }
}

/// Removes runs while an actor acts before a step, and returns whether there is such a step.
async fn check<S: RunShelf>(
    store: &RemovalStore<S>,
    names: &Names,
    kind: Kind,
    intruder: Intruder,
    step: usize,
) -> bool {
    let case = format!("{kind:?}, {intruder:?} before step {step}");
    let text = fill(store, names, kind, intruder).await;
    let end = store.log.read_feed(&EventFilter::new(), &Cursor::now()).await;
    let other = OtherProcess {
        log: Arc::clone(&store.log),
        errors: Arc::clone(&store.errors),
        queue: store.queue.clone(),
        cursor: end.expect("the feed is read").cursor,
    };
    let acted = Arc::new(tokio::sync::Mutex::new(None));
    let hook: Hook<'_> = {
        let (other, acted, names) = (other.clone(), Arc::clone(&acted), names.clone());
        Box::new(move || {
            let (other, acted, names) = (other.clone(), Arc::clone(&acted), names.clone());
            Box::pin(async move {
                *acted.lock().await = Some(other.act(&names, intruder).await);
            })
        })
    };
    let removed = remove(&Interrupted::new(&store.shelf, hook, step), names, kind).await;
    let acted = acted.lock().await.take();
    let is_step = acted.is_some();
    if let Some(acted) = acted {
        let acted = match acted {
            Ok(held) => other.finish(names, intruder, held).await,
            Err(error) => Err(error),
        };
        let left = Left::read(store, names, &text).await;
        left.check_removal(names, &removed, &case);
        left.check_actor(names, intruder, &acted, &removed, &case);
    }
    // What is still queued would be taken in the next case.
    if let Some(queue) = &store.queue {
        while queue.take().await.is_some() {}
    }
    is_step
}

/// Makes a session with a failed run, its child run, and a text that both refer to; and, where it matters, a run in the
/// queue or a subscription with an old segment.
async fn fill<S>(
    store: &RemovalStore<S>,
    names: &Names,
    kind: Kind,
    intruder: Intruder,
) -> ErrorId {
    let mut writer = RunWriter::new(Arc::clone(&store.log), names.run.as_str().into());
    append(&mut writer, started(&names.session, None, None)).await.expect("a run begins");
    let mut below = RunWriter::new(Arc::clone(&store.log), names.below.as_str().into());
    let first = started(&names.session, Some(&names.run), None);
    append(&mut below, first).await.expect("a run begins");
    append(&mut below, failed()).await.expect("a run ends");
    append(&mut writer, failed()).await.expect("a run ends");
    if kind == Kind::Segments {
        for number in [1, 2] {
            drop(begin_segment(&store.log, names, number).await.expect("a segment begins"));
        }
    }
    if let (Intruder::Take, Some(queue)) = (intruder, &store.queue) {
        queue.put(&names.session.as_str().into()).await;
    }
    let stored = store.errors.store(error(names, &names.run)).await.expect("an error is stored");
    stored.id
}

async fn remove<S: RunShelf>(shelf: &Interrupted<'_, S>, names: &Names, kind: Kind) -> Answer {
    let run = names.run.as_str();
    let named = |forgotten: Forgotten| {
        let forks = forgotten.forks.into_iter().map(|fork| fork.run).collect();
        (forgotten.removed.runs, Some(forks))
    };
    let aged = |removed: Result<backstop_retention::Removed, _>| {
        removed.map(|removed| (removed.runs, None)).map_err(Into::into)
    };
    let second = Duration::from_secs(1);
    match kind {
        Kind::Delete => delete_run(shelf, &run.into()).await.map(|removed| (removed.runs, None)),
        Kind::Forget => forget_session(shelf, &names.session.as_str().into(), "ada", false, at(9))
            .await
            .map(named),
        Kind::Prune => aged(prune_runs(shelf, second, &[], at(9)).await),
        Kind::Segments => {
            let answer = aged(prune_segments(shelf, second, at(9)).await);
            if let Ok((removed, _)) = &answer {
                assert!(removed.contains(&names.segment(1)), "{names:?}: an old segment is left");
                assert!(!removed.contains(&names.segment(3)), "{names:?}: the newest is removed");
            }
            answer
        }
    }
}
