//! One module per command.

pub(crate) mod codes;
pub(crate) mod errors;
pub(crate) mod rehearse;
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod trace;
