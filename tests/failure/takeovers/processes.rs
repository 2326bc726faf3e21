//! Two processes that share a store.

use std::sync::Arc;

use backstop::error_store::Store;
use backstop::store_postgres::Options;
use backstop::{Database, Durability, PostgresDatabase};
use backstop_testkit::contract::TwoProcesses;
use backstop_testkit::{PostgresServer, Relay};

/// Two processes that share a file; the first loses the file that shows that it lives.
pub(super) struct SharedFile {
    folder: tempfile::TempDir,
    first: Database,
    second: Database,
}

impl SharedFile {
    pub(super) async fn open() -> Arc<dyn TwoProcesses> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs.db");
        let first = Database::open(&file, Durability::Normal).await.unwrap();
        let second = Database::open(&file, Durability::Normal).await.unwrap();
        Arc::new(Self { folder, first, second })
    }
}

#[async_trait::async_trait]
impl TwoProcesses for SharedFile {
    fn first(&self) -> Arc<dyn Store> {
        Arc::new(self.first.clone())
    }
    fn second(&self) -> Arc<dyn Store> {
        Arc::new(self.second.clone())
    }
    async fn cut_off(&self) {
        // The second process makes its own when it claims the run.
        let files = std::fs::read_dir(self.folder.path()).unwrap().map(|it| it.unwrap().path());
        let owners = files.filter(|file| file.to_string_lossy().contains("-owner-"));
        owners.for_each(|file| std::fs::remove_file(file).unwrap());
    }
    async fn let_back(&self) {}
}

/// Two processes at a server; the first one's connections are cut.
pub(super) struct SharedServer {
    relay: Relay,
    first: PostgresDatabase,
    second: PostgresDatabase,
}

impl SharedServer {
    pub(super) async fn open(server: &PostgresServer) -> Arc<dyn TwoProcesses> {
        let url = server.database().await;
        let host = url.split('@').nth(1).unwrap().split('/').next().unwrap();
        let relay = Relay::start(host);
        let near = url.replace(host, &relay.address().to_string());
        let open = async |url: &str| {
            let options = Options::new(url).unwrap().connections(3);
            PostgresDatabase::connect_with(options).await.unwrap()
        };
        let (first, second) = (open(&near).await, open(&url).await);
        Arc::new(Self { relay, first, second })
    }
}

#[async_trait::async_trait]
impl TwoProcesses for SharedServer {
    fn first(&self) -> Arc<dyn Store> {
        Arc::new(self.first.clone())
    }
    fn second(&self) -> Arc<dyn Store> {
        Arc::new(self.second.clone())
    }
    async fn cut_off(&self) {
        self.relay.cut();
    }
    async fn let_back(&self) {
        self.relay.mend();
    }
}
