//! Records as runs read them: whose they are, what they say, and what may stand in them.

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
