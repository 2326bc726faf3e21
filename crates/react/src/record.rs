//! Reading of records by runs: their agents, their content, and the values that they may contain.

pub(crate) mod abandon;
pub(crate) mod copy;
pub(crate) mod digest;
pub(crate) mod fold;
pub(crate) mod past;
pub(crate) mod recordable;
mod run_transcript;
pub(crate) mod source;
mod target;
pub(crate) mod transcript;
pub(crate) mod transcript_cache;
