//! One module per command.

pub(crate) mod approvals;
pub(crate) mod backup;
pub(crate) mod cancel;
pub(crate) mod chat;
pub(crate) mod check;
pub(crate) mod codes;
pub(crate) mod completions;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod errors;
pub(crate) mod fork;
pub(crate) mod init;
pub(crate) mod man;
pub(crate) mod redact;
pub(crate) mod rehearse;
pub(crate) mod replay;
pub(crate) mod resolve;
pub(crate) mod results;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod sessions;
pub(crate) mod state;
pub(crate) mod trace;
pub(crate) mod vacuum;
pub(crate) mod verify;
