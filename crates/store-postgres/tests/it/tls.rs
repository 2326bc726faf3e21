//! TLS connections, and reasons not to trust them.

use backstop_event_log::{RunFilter, Runs};
use backstop_store_postgres::{Database, OpenError};
use backstop_testkit::PostgresServer;
use layer0::failure::{Failure, chain};

use crate::support::open;

/// Returns the URL of a database with TLS.
fn by_tls(url: &str, host: &str, parameters: &str) -> String {
    let url = url.replace("backstop@127.0.0.1", &format!("backstop:canary77@{host}"));
    format!("{url}?{parameters}")
}

/// Opens an untrusted database; returns the cause and the hint.
#[track_caller]
fn distrusted(opened: Result<Database, OpenError>) -> (String, String) {
    let error = opened.unwrap_err();
    assert!(matches!(error, OpenError::Untrusted { .. }), "{error:?}");
    assert_eq!((error.code(), error.retry().is_retryable()), ("store.failed", false));
    let (said, hint) = (chain(&error).join(": "), error.hint().unwrap().into_owned());
    assert!(!format!("{error:?}{said}{hint}").contains("canary77"), "{said}");
    (said, hint)
}

/// Spec: J2. Each mode is held against the root that is named, and the name of the host.
#[tokio::test(flavor = "multi_thread")]
async fn modes_check_root_and_name() {
    let Some(server) = PostgresServer::with_tls() else { return };
    let url = server.database().await;
    let root = server.root_certificate().display().to_string();
    let of_root = format!("&sslrootcert={root}");
    for (host, mode) in [
        ("localhost", "verify-full"),
        ("localhost", "verify-ca"),
        ("127.0.0.1", "verify-ca"),
        ("127.0.0.1", "require"),
    ] {
        let database = open(&by_tls(&url, host, &format!("sslmode={mode}{of_root}"))).await;
        assert!(database.log().runs(RunFilter::new()).await.unwrap().is_empty());
        database.close().await;
    }
    let database = open(&by_tls(&url, "127.0.0.1", "sslmode=require")).await;
    assert!(database.log().runs(RunFilter::new()).await.unwrap().is_empty());
    let are_encrypted = "DO $$ BEGIN IF (SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                         WHERE application_name = 'backstop') IS NOT TRUE THEN RAISE 'plain'; END IF; END $$";
    server.execute(are_encrypted).await;
    database.close().await;

    let connect = async |host, parameters: String| {
        distrusted(Database::connect(&by_tls(&url, host, &parameters)).await)
    };
    let (said, hint) = connect("127.0.0.1", format!("sslmode=verify-full{of_root}")).await;
    assert!(said.contains("not valid for name") && hint.contains("connect by a name"), "{said}");
    for mode in ["verify-full", "verify-ca"] {
        let (said, hint) = connect("localhost", format!("sslmode={mode}")).await;
        assert!(said.contains("UnknownIssuer") && hint.contains("sslrootcert=FILE"), "{said}");
    }
    let other = PostgresServer::with_tls().unwrap();
    let wrong = other.root_certificate().display().to_string();
    for mode in ["verify-full", "verify-ca", "require"] {
        let parameters = format!("sslmode={mode}&sslrootcert={wrong}");
        let (said, _) = connect("localhost", parameters).await;
        assert!(said.contains("invalid peer certificate"), "{mode}: {said}");
    }
    let gone = format!("{root}.gone");
    let (said, hint) =
        connect("localhost", format!("sslmode=verify-full&sslrootcert={gone}")).await;
    assert!(
        said.contains(&format!("sslrootcert `{gone}`")) && hint.contains("sslrootcert"),
        "{said}"
    );
}

/// Spec: J2. A server that speaks no TLS is not spoken to without it.
#[tokio::test(flavor = "multi_thread")]
async fn plain_servers_are_refused() {
    let server = crate::support::server!();
    let url = server.database().await;
    for mode in ["require", "verify-ca", "verify-full"] {
        let opened = Database::connect(&format!("{url}?sslmode={mode}")).await;
        let (said, hint) = distrusted(opened);
        assert!(said.contains("does not support TLS") && hint.contains("ssl = on"), "{said}");
    }
    open(&format!("{url}?sslmode=prefer")).await.close().await;
}
