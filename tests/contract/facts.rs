//! What every variant of the upper errors states: code, retry, effect, text.

use std::time::Duration;

use backstop::react::Divergence;
use backstop::{AgentError, ApprovalNotFound, History, HookError, OpenError, ProviderError};
use backstop_error_store::StoreError;
use backstop_event_log::LogError;
use layer0::event::DecodeError;
use layer0::failure::{Chain, Failure};
use layer0::message::Message;
use serde_json::Value;

fn row(failure: &(impl Failure + 'static)) -> String {
    let (code, retry, effect) = (failure.code(), failure.retry(), failure.effect());
    format!("{code} | {retry:?} | {effect:?} | {}", Chain(failure))
}

fn agent_errors() -> Vec<AgentError> {
    vec![
        AgentError::hook_aborted("gate", "not today"),
        AgentError::crash_loop("the call `sql`"),
        AgentError::hook_rejected("audit", HookError::Failed("no connection".into())),
        AgentError::InputValidation("the input is empty".into()),
        AgentError::Internal("a rule was broken".into()),
        AgentError::InvalidRequest(
            History::from([Message::user("a"), Message::user("b")]).check().unwrap_err(),
        ),
        AgentError::Llm(ProviderError::AuthFailed("no key".into())),
        AgentError::loop_detected("sql:08f44b07b5901a25", 5, 4),
        AgentError::MaxIterationsReached(25),
        AgentError::NotStarted(LogError::Closed),
        AgentError::OutputSerialization("cause is required".into()),
        AgentError::parallel_tool_limit(26, 25),
        AgentError::stagnation("af63dc4c8601ec8c", 6, 5),
        AgentError::Storage(LogError::Full("disk full".into())),
    ]
}

/// Spec: E6, E9, E2, E4, E7
#[test]
fn every_variant_states_its_facts() {
    let mut rows: Vec<String> = agent_errors().iter().map(row).collect();
    let hooks = [
        HookError::Failed("no connection".into()),
        HookError::Panicked("index 7".into()),
        HookError::timeout(Duration::from_secs(5)),
    ];
    rows.extend(hooks.iter().map(row));
    let logs = [
        LogError::ApprovalExpired("apr_1".into()),
        LogError::Claimed("run_1".into()),
        LogError::Closed,
        LogError::conflict("run_1".into(), 7),
        LogError::erased_event(7),
        LogError::Failed("odd".into()),
        LogError::ForeignCursor(backstop_event_log::Cursor::behind(7, None)),
        LogError::Forgetting("s-1".into()),
        LogError::Full("disk full".into()),
        LogError::key_missing("0123456789abcdef"),
        LogError::LeaseEnded("run_1".into()),
        LogError::Locked("busy".into()),
        LogError::Lost("run_1".into()),
        LogError::lost_tail("run_1".into(), 7),
        LogError::not_erasable(7, "it has no salt"),
        LogError::NotFound("run_1".into()),
        LogError::RunExists("run_1".into()),
        LogError::RunForgotten("run_1".into()),
        LogError::schema_newer(2, 1),
        LogError::StoreLost("/x.db".into()),
        LogError::tampered_event(7, "the hash does not match"),
        LogError::TooLarge("64 KiB".into()),
        LogError::unreadable(7, DecodeError::UnknownType("run.dreamt".into())),
        LogError::Unreachable("no route".into()),
        LogError::unreadable_run("run_1".into(), "no head"),
        LogError::WriterClosed("run_1".into()),
    ];
    rows.extend(logs.iter().map(row));
    let stores = [
        StoreError::Closed,
        StoreError::Failed("odd".into()),
        StoreError::Full("disk full".into()),
        StoreError::Locked("busy".into()),
        StoreError::Lost("/x.db".into()),
        StoreError::TooLarge("64 KiB".into()),
        StoreError::Unreachable("no route".into()),
    ];
    rows.extend(stores.iter().map(row));
    rows.push(row(&OpenError::Foreign("/x.db".into())));
    rows.push(row(&OpenError::Missing("/x.db".into())));
    rows.push(row(&ApprovalNotFound::new("apr_1".into())));
    rows.push(row(&Divergence::new(7, "tool.responded", Value::Null, Value::Null)));
    for row in &rows {
        assert!(!row.contains('\n') && !row.ends_with('.'), "{row}");
    }
    insta::assert_snapshot!(rows.join("\n"));
}

/// Spec: E2
#[test]
fn errors_stay_small() {
    for (name, size) in [
        ("AgentError", size_of::<AgentError>()),
        ("HookError", size_of::<HookError>()),
        ("LogError", size_of::<LogError>()),
        ("StoreError", size_of::<StoreError>()),
        ("Error", size_of::<backstop::Error>()),
    ] {
        assert!(size <= 64, "{name}: {size}");
    }
}

/// Spec: E5. From the top of an orchestrator down to what the server said.
#[tokio::test]
async fn sources_lead_from_the_orchestrator_to_the_wire() {
    use backstop::layer0::operator::{Context, Task};
    use backstop::layer0::{Orchestrator, error::OrchError};
    use backstop::{Agent, LocalOrchestrator, OpenAi};
    use backstop_testkit::{Loopback, Reply};

    let server = Loopback::serving(|_| Reply::html(502));
    let provider = OpenAi::new("m").base_url(server.url()).build().unwrap();
    let agent = Agent::builder(provider)
        .name("triage")
        .retry(backstop::RetryConfig::new().attempts(2).base(Duration::from_millis(1)))
        .build()
        .unwrap();
    let orchestrator = LocalOrchestrator::builder().operator(agent).build().unwrap();
    let error =
        orchestrator.dispatch("triage", Task::text("x"), Context::root()).await.unwrap_err();
    assert!(matches!(error, OrchError::OperatorError(_)), "an orchestrator's own level");
    assert_eq!(error.code(), "provider.transient");
    let mut causes: Vec<String> = Vec::new();
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    let mut attempts = 0;
    while let Some(one) = cause {
        causes.push(one.to_string());
        if let Some(ProviderError::Exhausted { attempts: tried, .. }) = one.downcast_ref() {
            attempts = *tried;
        }
        cause = one.source();
    }
    assert_eq!(attempts, 2, "{causes:#?}");
    let first = causes.last().unwrap();
    assert!(first.contains("502") || first.contains("HTML"), "{causes:#?}");
    let distinct: std::collections::BTreeSet<&String> = causes.iter().collect();
    assert_eq!(distinct.len(), causes.len(), "nothing is said twice: {causes:#?}");
}
