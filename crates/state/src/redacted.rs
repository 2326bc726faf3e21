use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use backstop_redact::Redactor;
use layer0::StateStore;
use layer0::error::StateError;
use layer0::state::{
    Added, Expected, Scope, StateAdd, StateEntry, StateQuery, StateWrite, Versioned,
};

use crate::prepared::{check_identity, redact};

/// A state store that never passes a secret of the process to the store it wraps: values are redacted, and scopes and
/// keys that contain a secret are refused.
///
/// ```
/// use std::sync::Arc;
/// use backstop_redact::Redactor;
/// use backstop_state::{MemoryStateStore, RedactedStateStore};
/// use layer0::StateStore;
/// use layer0::state::{Scope, StateWrite};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), layer0::error::StateError> {
/// let redactor = Redactor::new().with_secret("held-secret-key");
/// let state = RedactedStateStore::new(Arc::new(MemoryStateStore::new()), redactor);
/// state.write(StateWrite::new(Scope::Global, "said", json!("held-secret-key"))).await?;
/// assert_eq!(state.read(&Scope::Global, "said").await?.unwrap().value, json!("[redacted]"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedactedStateStore {
    store: Arc<dyn StateStore>,
    redactor: Redactor,
}

impl RedactedStateStore {
    /// Wraps a store.
    pub const fn new(store: Arc<dyn StateStore>, redactor: Redactor) -> Self {
        Self { store, redactor }
    }
}

impl fmt::Debug for RedactedStateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedactedStateStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl StateStore for RedactedStateStore {
    async fn read(&self, scope: &Scope, key: &str) -> Result<Option<Versioned>, StateError> {
        check_identity(scope, key, &self.redactor)?;
        self.store.read(scope, key).await
    }

    async fn write(&self, mut write: StateWrite) -> Result<u64, StateError> {
        check_identity(&write.scope, &write.key, &self.redactor)?;
        write.value = redact(write.value.text()?, &self.redactor).into();
        self.store.write(write).await
    }

    async fn add(&self, add: StateAdd) -> Result<Added, StateError> {
        check_identity(&add.scope, &add.key, &self.redactor)?;
        self.store.add(add).await
    }

    async fn delete(
        &self,
        scope: &Scope,
        key: &str,
        expected: Expected,
    ) -> Result<bool, StateError> {
        check_identity(scope, key, &self.redactor)?;
        self.store.delete(scope, key, expected).await
    }

    async fn list(&self, query: StateQuery) -> Result<Vec<StateEntry>, StateError> {
        check_identity(&query.scope, &query.prefix, &self.redactor)?;
        self.store.list(query).await
    }

    async fn search(&self, query: StateQuery, text: &str) -> Result<Vec<StateEntry>, StateError> {
        check_identity(&query.scope, &query.prefix, &self.redactor)?;
        self.store.search(query, text).await
    }

    async fn scopes(&self, after: Option<&Scope>, limit: u32) -> Result<Vec<Scope>, StateError> {
        self.store.scopes(after, limit).await
    }

    async fn clear(&self, scope: &Scope) -> Result<u64, StateError> {
        check_identity(scope, "", &self.redactor)?;
        self.store.clear(scope).await
    }
}
