//! The rules, by endpoint.

mod anthropic;
mod anthropic_tools;
mod bedrock;
mod chat;
mod chat_returns;
mod chat_roles;
mod chat_tools;
mod every;
mod gemini;
mod gemini_tools;
mod ollama;
mod responses;
mod responses_items;

use super::rule::Rule;

pub(super) use every::{JSON, PATH};

/// All tables, in the order in which they are applied.
pub(super) const TABLES: [&[Rule]; 13] = [
    every::RULES,
    anthropic::RULES,
    anthropic_tools::RULES,
    bedrock::RULES,
    chat::RULES,
    chat_roles::RULES,
    chat_tools::RULES,
    chat_returns::RULES,
    gemini::RULES,
    gemini_tools::RULES,
    ollama::RULES,
    responses::RULES,
    responses_items::RULES,
];
