//! No arguments panic the schema check, and what the model reads of a refusal is bounded.
#![no_main]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use backstop_builtin_tools::{CommandTool, Program};
use backstop_tool::{Grants, ToolError, ToolSpec, Toolset};
use libfuzzer_sys::fuzz_target;

static TOOLS: LazyLock<Toolset> = LazyLock::new(|| {
    let schema = serde_json::from_str(include_str!("tool_arguments.json")).unwrap();
    let spec = ToolSpec::new("fixed", "Is never run.", schema);
    Toolset::new()
        .with(CommandTool::new(spec, Program::new("true", [], ".", BTreeMap::new())))
        .unwrap()
});

fuzz_target!(|text: &str| {
    let arguments = backstop_provider_http::parse_arguments(text);
    if let Err(error) = TOOLS.admit("fixed", arguments, &Grants::none()) {
        assert!(matches!(error.kind(), ToolError::InvalidInput(_)), "{error}");
        assert!(error.to_string().chars().count() < 3_000, "{error}");
    }
});
