//! Encoders of each protocol.

pub mod anthropic;
pub mod bedrock;
pub mod gemini;
pub mod ollama;
pub mod openai;
mod protocol;
pub mod responses;

pub use protocol::{Cannot, MakeProvider, Wire};
