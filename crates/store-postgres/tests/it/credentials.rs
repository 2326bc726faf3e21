//! Passwords, which must never be shown.

use std::sync::Arc;

use backstop_event_log::EventLog;
use backstop_store_postgres::{Database, OpenError, Options};
use backstop_testkit::PostgresServer;
use layer0::failure::{Failure, chain};

use crate::support::{begin, open};

const CANARY: &str = "canary77";

/// Spec: J2, C3. A password lets its user in, a wrong one does not, and none is ever shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_asked_for_and_not_shown() {
    let Some(server) = PostgresServer::start() else { return };
    let url = server.database().await;
    server
        .execute(&format!(
            "CREATE ROLE with_password; CREATE ROLE ann LOGIN SUPERUSER PASSWORD '{CANARY}' IN ROLE with_password"
        ))
        .await;
    let of = |password: &str| url.replace("//backstop@", &format!("//ann:{password}@"));
    for url in [of(&format!("{CANARY}-wrong")), url.replace("//backstop@", "//ann@")] {
        let error = Database::connect(&url).await.unwrap_err();
        assert!(matches!(&error, OpenError::Denied { user, .. } if user == "ann"), "{error:?}");
        let hint = error.hint().unwrap().into_owned();
        assert!(hint.contains("PGPASSWORD") && hint.contains(".pgpass"), "{hint}");
        let said = format!("{error:?} {} {hint}", chain(&error).join(": "));
        assert!(!said.contains(CANARY), "{said}");
    }
    let right = of(CANARY);
    let database = open(&right).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let writer = begin(&log, "run_1", "s").await;
    let claim = log.claim_new(&"run_2".into());
    let options = Options::new(&right).unwrap();
    let shown = format!(
        "{options:?} {database:?} {writer:?} {claim:?} {:?} {:?} {:?}",
        database.log(),
        database.errors(),
        database.state()
    );
    assert!(shown.contains("Database") && !shown.contains(CANARY), "{shown}");
    drop((writer, claim));
    database.close().await;
}
