//! Keys of starts whose run was removed.

use std::collections::BTreeMap;
use std::time::Duration;

use backstop_event_log::{KeyBinding, StartKey, StartKeys};
use backstop_store_sqlite::Database;
use layer0::operator::Task;

use crate::removal::{DAY, over};
use crate::{at, started};

async fn bind(database: &Database, key: &str, run: &str) -> KeyBinding {
    let key = StartKey::new("demo", key, &Task::text("go"), None, &BTreeMap::new()).unwrap();
    database.log().bind(&key, &run.into(), at(0)).await.unwrap()
}

/// Spec: J2w, S10. What a key stands for is done once, also when its record was removed.
#[tokio::test]
async fn removed_run_of_a_key_stays_removed() {
    for way in ["prune", "delete", "forget"] {
        let database = Database::in_memory().await.unwrap();
        for (key, run) in [("old", "run_1"), ("other", "run_2")] {
            bind(&database, key, run).await;
        }
        over(&database, 0, "run_1", started("s")).await;
        over(&database, 40, "run_2", started("other")).await;
        let removed = match way {
            "prune" => database.prune_runs(Duration::ZERO, &[], at(DAY)).await.unwrap(),
            "delete" => database.delete_run(&"run_1".into()).await.unwrap(),
            _ => database.forget_session(&"s".into(), "ann", false, at(9)).await.unwrap().removed,
        };
        assert_eq!(removed.runs, ["run_1".into()], "{way}");
        assert_eq!(
            bind(&database, "old", "run_3").await,
            KeyBinding::Removed("run_1".into()),
            "{way}"
        );
        let kept = KeyBinding::Earlier("run_2".into());
        assert_eq!(bind(&database, "other", "run_3").await, kept, "{way}");
    }
}
