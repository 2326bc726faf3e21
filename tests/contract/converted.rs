//! Every public error of the parts converts into the facade's one error.

use std::path::Path;

use regex::Regex;

use backstop::Error;

/// Holds that a type converts, and names it.
fn converts<E: Into<Error>>() -> &'static str {
    let name = std::any::type_name::<E>();
    name.rsplit("::").next().unwrap_or(name)
}

fn converted() -> Vec<&'static str> {
    vec![
        converts::<backstop::AgentError>(),
        converts::<backstop::ApprovalNotFound>(),
        converts::<backstop::BackupError>(),
        converts::<backstop::BuildError>(),
        converts::<backstop::ConfigurationError>(),
        converts::<backstop::ExecutionError>(),
        converts::<backstop::HookError>(),
        converts::<backstop::InvalidCursor>(),
        converts::<backstop::InvalidPattern>(),
        converts::<backstop::InvalidLimitScope>(),
        converts::<backstop::event_log::InvalidStartKey>(),
        converts::<backstop::InvalidStoreUrl>(),
        converts::<backstop::UnsupportedSetting>(),
        converts::<backstop::OpenError>(),
        converts::<backstop::OperatorNameError>(),
        converts::<backstop::PackError>(),
        converts::<backstop::GrantError>(),
        converts::<backstop::QueueError>(),
        converts::<backstop::worker::WorkerBuildError>(),
        converts::<backstop::ProviderConfigError>(),
        converts::<backstop::ProviderError>(),
        converts::<backstop::RegistrationError>(),
        converts::<backstop::RemoveError>(),
        converts::<backstop::ReplayError>(),
        converts::<backstop::RequestError>(),
        converts::<backstop::RunFailure>(),
        converts::<backstop::StorageError>(),
        converts::<backstop::behaviors::HostError>(),
        converts::<backstop::behaviors::InvalidDeliveryId>(),
        converts::<backstop::behaviors::RedeliverError>(),
        converts::<backstop::event_log::PatternError>(),
        converts::<backstop::orchestrator::Diverged>(),
        converts::<backstop::orchestrator::WorkflowRecordError>(),
        converts::<backstop::McpError>(),
        converts::<backstop::mcp_server::ServeError>(),
        converts::<backstop::ToolError>(),
        converts::<layer0::error::EnvError>(),
        converts::<layer0::error::OperatorError>(),
        converts::<layer0::error::OrchError>(),
        converts::<layer0::error::StateError>(),
        converts::<layer0::event::DecodeError>(),
        converts::<layer0::message::ImageError>(),
        converts::<layer0::orchestrator::UnknownOperator>(),
        converts::<layer0::state::InvalidScope>(),
        converts::<layer0::time::ParseTimestampError>(),
        converts::<backstop_react::DecideError>(),
        converts::<backstop_react::DefinitionError>(),
        converts::<backstop_react::Divergence>(),
        converts::<backstop_react::Misuse>(),
        converts::<backstop_react::LoggedFailure>(),
        converts::<backstop_react::ResumeError>(),
        converts::<backstop_config::ConfigError>(),
        converts::<backstop_error_store::StoreError>(),
        converts::<backstop_event_log::LogError>(),
        converts::<backstop_tool::SchemaViolation>(),
        converts::<backstop_tool::ToolRegistrationError>(),
        converts::<backstop_tool::SchemaError>(),
        converts::<backstop_tool::ToolNotFound>(),
    ]
}

/// Errors that no application meets as such, and why.
const EXCEPT: &[(&str, &str)] = &[
    ("DispatchFailure", "a layer's; the orchestrator's own error is made from it"),
    ("CircuitOpen", "a layer's; the service's own error is made from it"),
    ("Error", "the facade's own"),
    ("ErrorText", "the texts of a failure that is gone, as the source of another"),
    ("Exhausted", "a layer's; it wraps the service's own error"),
    ("NameError", "part of the errors that refuse a name"),
    ("HistoryFault", "part of `RequestError`"),
    ("LabelError", "part of `RequestError`"),
    ("SessionNameError", "part of `RequestError`"),
    ("NotReopenable", "part of `ResumeError`"),
    ("NotShown", "why a model reads a line of text in place of an image"),
    ("OlderSchema", "the cause of a `LogError`"),
    ("DeadlinePassed", "the cause of an `EnvError`, whose operator was too late"),
    ("DivergencePoint", "part of `Diverged`"),
    ("RequestDenied", "the cause of the error of what was to be sent"),
    ("RehearsalError", "of the crate that plays scenarios, which the facade does not have"),
    ("ScriptExhausted", "the cause of a `ProviderError` of scripts"),
    ("TimedOut", "a layer's; the service's own error is made from it"),
];

/// The crates that no application is built from.
const TOOLS: &[&str] = &["cli", "testkit"];

fn public_errors(folder: &Path, found: &mut Vec<String>) {
    let derived = Regex::new(
        r"derive\([^)]*\b(?:Error|ThisError)\b[^)]*\)\]\s*(?:#\[[^\n]*\]\s*|///[^\n]*\s*)*pub (?:enum|struct) (\w+)",
    )
    .unwrap();
    let written =
        Regex::new(r"impl(?:<[^>]*>)? (?:std::error::|core::error::)?Error for (\w+)").unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            public_errors(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for pattern in [&derived, &written] {
                found.extend(pattern.captures_iter(&text).map(|found| found[1].to_owned()));
            }
        }
    }
}

/// Spec: E12
#[test]
fn every_public_error_converts_into_the_facades() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let entry = entry.unwrap();
        if !TOOLS.contains(&&*entry.file_name().to_string_lossy()) {
            public_errors(&entry.path().join("src"), &mut found);
        }
    }
    found.sort_unstable();
    found.dedup();
    assert!(found.len() > 35, "{found:?}");
    let converted = converted();
    for error in &found {
        let known = converted.contains(&&**error) || EXCEPT.iter().any(|(name, _)| name == error);
        assert!(known, "`{error}` has no conversion into `backstop::Error`");
    }
    for (name, why) in EXCEPT {
        assert!(found.iter().any(|error| error == name), "`{name}` is gone: {why}");
    }
}
