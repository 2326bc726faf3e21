//! A host of behaviours: one is told of five warnings of a run, and fails at one of them; another one is told of
//! that.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use backstop::EventLog;
use backstop::behaviors::{BehaviorHost, Start, behavior};
use backstop::event_log::{RunWriter, Seed};
use backstop::layer0::Timestamp;
use backstop::layer0::error::OperatorError;
use backstop::layer0::event::{Actor, Warning};
use backstop::layer0::id::RunId;
use backstop::layer0::stop::Stop;

use crate::kept::Kept;
use crate::{Deadly, Effects, Failed};

/// How many warnings there are, and which of them the behaviour fails at.
const WARNINGS: u64 = 5;
const FAILS_AT: u64 = 4;

async fn warn(database: &Kept, run: &RunId) -> Result<(), Failed> {
    let log: Arc<dyn EventLog> = database.log();
    if log.summary(run).await?.is_some() {
        return Ok(());
    }
    let mut writer = RunWriter::new(log, run.clone());
    for number in 1..=WARNINGS {
        let warning = Warning::new(format!("number {number}")).into();
        writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Runtime, None, warning);
    }
    drop(writer.commit().await?);
    Ok(())
}

/// Delivers what is to be delivered.
pub(crate) async fn act(
    database: Kept,
    log: Deadly,
    effects: Effects,
    run: RunId,
) -> Result<Stop, Failed> {
    warn(&database, &run).await?;
    let note = move |id: &str| {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&effects.path)?;
        file.write_all(format!("{id}\n").as_bytes())?;
        file.sync_all()
    };
    let (first, second) = (note.clone(), note);
    let told = behavior("told", "warning".parse()?, move |delivery, _| {
        let note = first.clone();
        async move {
            note(&delivery.id).map_err(backstop::behaviors::BehaviorError::other)?;
            match delivery.seq {
                FAILS_AT => Err(OperatorError::NonRetryable("no".to_owned()).into()),
                _ => Ok(()),
            }
        }
    });
    let ops = behavior("ops", "behavior.failed".parse()?, move |delivery, _| {
        let note = second.clone();
        async move { note(&delivery.id).map_err(backstop::behaviors::BehaviorError::other) }
    });
    let host = BehaviorHost::builder(Arc::new(log))
        .behavior(told.start(Start::Start))
        .behavior(ops.start(Start::Start));
    let serving = host.build()?.serve();
    if !serving.settle(Duration::from_secs(30)).await {
        return Err("the deliveries do not end".into());
    }
    serving.stop().await;
    database.close().await;
    Ok(Stop::Completed)
}
