//! A scripted memory.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_config::MemoryTable;
use backstop_react::{Memory, MemoryEntry, MemoryQuery};
use layer0::error::BoxError;
use layer0::id::SessionId;

use crate::marks::{Marks, ReachMark};

/// A memory with scripted contents and faults.
pub(crate) struct ScriptedMemory {
    pub(crate) table: MemoryTable,
    pub(crate) marks: MemoryMarks,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The scripted faults of a memory; empty if it has none.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryMarks {
    read: Option<ReachMark>,
    write: Option<ReachMark>,
}

impl MemoryMarks {
    /// Adds the faults of a memory; `agent` is the agent's name in the report.
    pub(crate) fn add(table: &MemoryTable, agent: &str, marks: &Marks) -> Self {
        let fails = |error: &Option<String>, panic: &Option<String>, hang_ms: Option<u64>| {
            error.is_some() || panic.is_some() || hang_ms.is_some()
        };
        let mark = |is_scripted: bool, what: &str| {
            is_scripted.then(|| marks.add(format!("fault of a memory {what}{agent}")))
        };
        Self {
            read: mark(fails(&table.read_error, &table.read_panic, table.read_hang_ms), "read"),
            write: mark(
                fails(&table.write_error, &table.write_panic, table.write_hang_ms),
                "write",
            ),
        }
    }
}

impl ScriptedMemory {
    async fn act(
        &self,
        hang_ms: Option<u64>,
        panic: Option<&String>,
        error: Option<&String>,
    ) -> Result<(), BoxError> {
        if let Some(ms) = hang_ms {
            self.clock.sleep(Duration::from_millis(ms)).await;
        }
        if let Some(text) = panic {
            // Unwinds without the panic hook, which would print to the terminal.
            std::panic::resume_unwind(Box::new(text.clone()));
        }
        match error {
            Some(text) => Err(text.as_str().into()),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Memory for ScriptedMemory {
    async fn read(&self, _: MemoryQuery) -> Result<Vec<String>, BoxError> {
        let table = &self.table;
        self.marks.read.iter().for_each(ReachMark::reach);
        self.act(table.read_hang_ms, table.read_panic.as_ref(), table.read_error.as_ref()).await?;
        Ok(table.entries.clone())
    }

    async fn write(&self, _: MemoryEntry) -> Result<(), BoxError> {
        let table = &self.table;
        self.marks.write.iter().for_each(ReachMark::reach);
        self.act(table.write_hang_ms, table.write_panic.as_ref(), table.write_error.as_ref()).await
    }

    async fn forget(&self, _: Option<&SessionId>) -> Result<u64, BoxError> {
        Ok(0)
    }
}
