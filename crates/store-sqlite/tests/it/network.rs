//! Files on network file systems.

use std::path::Path;

use backstop_store_sqlite::{Database, Durability, OpenError, OpenOptions};
use layer0::failure::Failure;

fn on_nfs(_: &Path) -> Option<String> {
    Some("nfs4".to_owned())
}

/// Spec: D2. The write-ahead log would corrupt there.
#[tokio::test]
async fn network_file_systems_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/a.db");
    let options = OpenOptions::new().durability(Durability::Full).probe(on_nfs);
    let refused = Database::open_with(&path, options).await.unwrap_err();
    assert!(matches!(refused, OpenError::NetworkFileSystem { .. }), "{refused}");
    assert!(refused.to_string().contains("(nfs4)"), "{refused}");
    assert_eq!(refused.code(), "store.failed");
    assert!(!folder.path().join("new").exists(), "nothing is made");
    // Reads map the write-ahead log too.
    let made = Database::open_with(&path, options.network_fs(true)).await.unwrap();
    made.close().await;
    let refused = Database::open_read_only_with(&path, options).await.unwrap_err();
    assert!(matches!(refused, OpenError::NetworkFileSystem { .. }), "{refused}");
    let read = Database::open_read_only_with(&path, options.network_fs(true)).await.unwrap();
    read.close().await;
}
