//! The TOML formats of agent and scenario files.
//!
//! Files are read strictly: an unknown key is an error with the key, its line and the nearest known key. A key of the
//! format that this version does not support yet is an error too. Nothing here opens a store, calls a model or runs a
//! tool.

mod agent_file;
mod agent_memory_table;
mod agent_table;
mod approvals;
mod behavior_check;
mod behavior_table;
mod check;
mod checked;
mod environment_table;
mod error;
mod exact;
mod fault_tables;
mod grant;
mod hints;
mod later;
mod limit_table;
mod line;
mod mcp_table;
mod model_table;
mod names;
mod operator_table;
mod parse;
mod probes;
mod read;
mod redact_table;
mod scenario;
mod scripted_hook;
mod scripted_names;
mod scripted_tool;
mod signal_table;
mod tables;
mod text_list;
mod text_or_credential;
mod workflow_table;

pub use agent_file::{AgentFile, DurabilityName, StoreTable, ToolKind, ToolTable};
pub use agent_memory_table::{AgentMemoryTable, MemoryKind, MemoryScope};
pub use agent_table::{
    AgentTable, BoundSetting, BudgetTable, LimitsTable, PolicyTable, PriceTable, RetryTable,
};
pub use behavior_table::{BehaviorAction, BehaviorStart, BehaviorTable, WebhookTable};
pub use check::CheckedFile;
pub use environment_table::{EnvironmentTable, NetworkRule};
pub use error::ConfigError;
pub use fault_tables::{LogFaultTable, MemoryTable, StoreFault, StoreFaultTable};
pub use grant::resolve_capability;
pub use limit_table::LimitTable;
pub use mcp_table::{McpPlace, McpTable, OauthTable};
pub use model_table::{DialectName, EndpointTable, ModelTable, ProviderName, TimeoutsTable};
pub use operator_table::OperatorTable;
pub use read::{MAX_TEXT_BYTES, read_bytes, read_text, read_text_from};
pub use redact_table::RedactTable;
pub use scenario::{Expect, Reopening, Scenario, Unused};
pub use scripted_hook::{ApprovalVerdict, HookAction, ScriptedDecision, ScriptedHook};
pub use scripted_tool::{ProbeVerdict, ScriptedAsk, ScriptedCall, ScriptedTool};
pub use signal_table::SignalTable;
pub use text_or_credential::TextOrCredential;
pub use workflow_table::{FailurePolicy, RestartRule, WorkflowKind};

pub use agent_file::read_script;
