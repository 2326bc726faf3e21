//! The command in real use: real processes, real files, real HTTP on loopback.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[cfg(unix)]
mod answering;
mod asking;
#[cfg(unix)]
mod awaiting;
#[cfg(unix)]
mod behaving;
mod bedrock;
mod below;
mod bench;
mod builtins;
mod byte_order;
#[cfg(target_os = "linux")]
mod canary;
mod carrying;
#[cfg(unix)]
mod chatting;
mod costs;
#[cfg(unix)]
mod credentials;
mod data;
mod denying;
mod doing_once;
mod durable;
#[cfg(unix)]
mod eliciting;
mod episodes;
#[cfg(unix)]
mod erasing;
mod exit_codes;
#[cfg(unix)]
mod following;
#[cfg(unix)]
mod files;
mod harmless;
// Walls exist only on Linux.
#[cfg(target_os = "linux")]
mod healing;
mod ids;
mod interrupted;
#[cfg(unix)]
mod leaving;
mod limits;
mod listing;
mod losing;
mod machine;
mod mcp_servers;
mod mistaken;
mod models;
mod newcomer;
mod numbers;
mod objects;
mod occupied;
mod outage;
mod page;
mod pages;
mod postgres;
#[cfg(unix)]
mod prompting;
mod reading;
mod record;
// On other systems, the platform determines the trusted certificates, and no variable does.
#[cfg(target_os = "linux")]
mod refusing;
mod outside;
mod remembering;
mod running;
mod secrets;
mod serving;
mod settling;
mod setup;
mod sqlite;
// Pipes of a certain size, and a device that is always full.
#[cfg(target_os = "linux")]
mod sharing;
mod spending;
mod stating;
mod streams;
#[cfg(target_os = "linux")]
mod syncing;
#[cfg(unix)]
mod tables;
#[cfg(unix)]
mod tables_of_stores;
mod terminal;
mod trees;
#[cfg(unix)]
mod turning;
mod unused_flags;
mod upkeep;
#[cfg(unix)]
mod walled;
mod watching;
#[cfg(unix)]
mod worker;
