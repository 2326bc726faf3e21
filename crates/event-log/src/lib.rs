//! The durable record of runs: events are appended before actions, chained by hashes and folded into a summary.
//!
//! An [`EventLog`] stores [`Record`]s; it is a set of [ports](Ports), traits with one role each. A [`RunWriter`] is the
//! only writer of a run: it numbers and seals events, and appends them to the log in one batch. Records are verified
//! against the hash chain before they are trusted. [`follow`] returns events as any process appends them.
//!
//! This crate never decides which events are recorded; the machine and the driver do.

mod account;
mod approval;
mod attempts;
mod batch;
mod callers;
mod chain;
mod claim;
mod claims;
mod cursor;
mod digest;
mod error;
mod escape;
mod feed;
mod filter;
mod fold;
mod follow;
mod inbox;
mod inbox_reader;
mod known_end;
mod lease;
mod memory;
mod pattern;
mod patterns;
mod ports;
mod read;
mod record;
mod seal;
mod secret;
mod settlement;
mod start_key;
mod stuck;
mod store_url;
mod subscription;
mod summary;
mod trace;
mod transcript_part;
mod verification;
mod watches;
mod writer;

pub use account::account_scope;
pub use approval::{ApprovalChange, Decision, OpenApproval};
pub use attempts::FailedAttempts;
pub use batch::Batch;
pub use callers::open_root;
pub use chain::{Verifier, verify};
pub use claim::Claim;
pub use claims::{Claims, RunReservation};
pub use cursor::{Cursor, InvalidCursor};
pub use digest::{task_digest, text_digest};
pub use error::LogError;
pub use escape::{escape_json, is_harmful, is_joiner_needed};
pub use feed::{EventWatch, EventWatches, FeedPage, FeedRecord};
pub use filter::{AttemptFilter, EventFilter, RunFilter};
pub use follow::{Feed, follow};
pub use inbox::{InboxMessage, InboxRequest, InboxWatch, InboxWatches};
pub use inbox_reader::InboxReader;
pub use known_end::{Incarnation, KnownEnd, KnownEnds, LostRun};
pub use lease::{ActionGuard, Lease, begin_work, while_it_lasts};
pub use memory::MemoryLog;
pub use pattern::{MAX_CONDITIONS, MAX_PATTERN_CHARS, Pattern, PatternError};
pub use patterns::{MAX_PATTERNS, Patterns};
pub use ports::{
    Erasures, EventFeed, EventLog, Inbox, Log, LostTails, Ports, Runs, Seals, Subscriptions,
    Transcripts,
};
pub use read::{read_events, read_records};
pub use record::{Payload, Record};
pub use seal::{KeptRow, RowSeal, RunSeals};
pub use secret::{LogKey, Seed};
pub use settlement::Settlement;
pub use start_key::{InvalidStartKey, KeyBinding, StartDifference, StartKey, StartKeys};
pub use store_url::{InvalidStoreUrl, StoreUrl};
pub use stuck::{StuckReason, StuckRun, UnattendedRuns, stuck_runs};
pub use subscription::{Moves, Subscription, is_segment, parse_segment, segment_id};
pub use summary::{
    AcceptedLoss, LastFailure, RunState, RunSummary, Terms, current_agent, readable_sessions,
    session_of_fork,
};
pub use trace::{Trace, TreeTrace, describe, format_count, one_line};
pub use transcript_part::TranscriptPart;
pub use verification::{UncheckedParts, Verified, verify_run};
pub use writer::RunWriter;
