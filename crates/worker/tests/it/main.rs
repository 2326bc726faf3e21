//! Workers on a real PostgreSQL server.

mod drain;
mod queue;
mod support;
mod work;
