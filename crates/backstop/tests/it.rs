//! The facade's error, as an application meets it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "it/examples.rs"]
mod examples;

use std::error::Error as _;
use std::io;

use backstop::layer0::error::{OperatorError, OrchError};
use backstop::layer0::failure::chain;
use backstop::{
    Agent, ApprovalDesk, Budget, Database, Error, Limits, OpenAi, Pack, RetryConfig,
    ScriptedProvider, StoreUrl, layer0, tool,
};
use backstop_testkit::ClosedPort;

/// Adds.
#[tool]
async fn add(x: i64, y: i64) -> Result<i64, backstop::ToolError> {
    Ok(x + y)
}

fn builder() -> backstop::AgentBuilder {
    Agent::builder(ScriptedProvider::saying(["hello"])).tool(add)
}

fn fails(build: backstop::AgentBuilder) -> Error {
    build.build().unwrap_err().into()
}

/// Spec: E12, E7. Each mistake has its category, says what and why, and how to fix it.
#[tokio::test]
async fn usage_errors_have_reason_and_hint() {
    #[track_caller]
    fn check(error: Error, text: &str, hint: &str, kind: io::ErrorKind) {
        assert_eq!(chain(&error).join(": "), text);
        assert!(error.hint().contains(hint), "{}", error.hint());
        for cause in chain(&error) {
            assert!(!cause.contains('\n') && !cause.ends_with('.'), "{cause}");
        }
        assert_eq!(io::Error::from(error).kind(), kind);
    }
    use io::ErrorKind::{InvalidInput, NotFound};
    let limits = Limits::new().max_iterations(0);
    check(
        fails(builder().limits(limits)),
        "configuration: invalid configuration: `max_iterations` must be at least 1",
        "in its bounds",
        InvalidInput,
    );
    let budget = Budget::new().cost_usd(1.0);
    check(
        fails(builder().budget(budget)),
        "configuration: invalid configuration: `max_cost_usd` needs a price, and model `script` of `script` has none",
        "`AgentBuilder::price`",
        InvalidInput,
    );
    let url: Result<StoreUrl, _> = "mysql://x".parse();
    check(
        url.unwrap_err().into(),
        "configuration: invalid store: invalid store URL `mysql://x`: expected `sqlite:PATH`, \
         `sqlite::memory:` or `postgres://…`",
        "sqlite:PATH",
        InvalidInput,
    );
    check(
        fails(builder().tool(add)),
        "registration: invalid tool: there is already a tool named `add`",
        "name of its own",
        InvalidInput,
    );
    check(
        fails(builder().require_approval("ad")),
        "registration: unknown tool: no tool named `ad`",
        "did you mean `add`?",
        NotFound,
    );
    check(
        Error::behavior_not_found("alarm"),
        "registration: no behaviour named `alarm`",
        "register",
        NotFound,
    );
    let pattern = fails(builder().grant("fs:read:/a/***"));
    assert!(matches!(pattern, Error::Pattern(_)), "{pattern:?}");
    assert!(pattern.hint().contains("fs:read:/data/**"));
    check(
        fails(builder().pack(Pack::new("math").tool(add))),
        "pack: pack `math` brings `add`, which the agent itself has already",
        "rename",
        InvalidInput,
    );
    let unknown = ApprovalDesk::default().approve(&"apr_1".into(), "ops").unwrap_err();
    check(
        unknown.into(),
        "execution: nothing to decide: no open approval `apr_1`",
        "decided once",
        NotFound,
    );
    let missing =
        Database::open_read_only(std::path::Path::new("/no/such/folder/x.db")).await.unwrap_err();
    check(
        missing.into(),
        "storage: database cannot be used: no database at `/no/such/folder/x.db`",
        "",
        NotFound,
    );
}

/// Spec: E12, E5, E6. A run's failure keeps its facts and its sources.
#[tokio::test]
async fn a_failed_run_keeps_its_facts() -> Result<(), Error> {
    let retry = RetryConfig::new().attempts(1);
    let agent = Agent::builder(ScriptedProvider::new(Vec::new())).retry(retry).build()?;
    let error = Error::from(agent.run("x").await.unwrap_err());
    assert_eq!((error.code(), error.is_retryable()), ("provider.other", false));
    assert!(!error.hint().is_empty());
    let mut cause = error.source();
    let mut depth = 0;
    while let Some(source) = cause {
        depth += 1;
        cause = source.source();
    }
    assert!(depth >= 4, "{}", chain(&error).join(": "));
    Ok(())
}

/// Spec: E12. With `?`, whichever part it comes from.
#[test]
fn every_error_of_the_parts_has_a_category() {
    use backstop::event_log::LogError;
    use backstop::layer0::Timestamp;
    use backstop::layer0::error::{EnvError, StateError};
    use backstop::layer0::event::EventKind;
    use backstop::layer0::message::{ImageError, Message};
    use backstop::provider::TimeoutPhase;
    use backstop::react::{Divergence, Misuse, ResumeError};
    use backstop::{AgentError, Failure, History, HookError, ProviderError, ToolError};
    use io::ErrorKind::{InvalidData, InvalidInput, NotFound, Other, PermissionDenied, TimedOut};

    #[track_caller]
    fn check(error: impl Into<Error>, category: &str, code: &str, kind: io::ErrorKind) {
        let error = error.into();
        assert_eq!((&*error.to_string(), error.code()), (category, code), "{error:?}");
        assert!(error.source().is_some() && !error.hint().is_empty());
        let texts = chain(&error);
        for (index, text) in texts.iter().enumerate() {
            assert!(!text.contains('\n') && !text.ends_with('.'), "{text}");
            assert!(!texts[index + 1..].contains(text), "said twice: {texts:?}");
        }
        assert_eq!(io::Error::from(error).kind(), kind);
    }
    let run = |error: AgentError| check(error, "execution", "input.invalid", InvalidInput);
    run(AgentError::InputValidation("the input is empty".into()));
    let unasked = History::from([Message::assistant("x", [].into())]);
    let invalid = unasked.check().unwrap_err();
    run(invalid.clone().into());
    check(invalid, "execution", "input.invalid", InvalidInput);
    let timeout = || ProviderError::timeout(TimeoutPhase::Idle, None);
    check(timeout(), "execution", "provider.timeout", TimedOut);
    check(AgentError::Llm(timeout()), "execution", "provider.timeout", TimedOut);
    check(
        ProviderError::AuthFailed("no".into()),
        "execution",
        "provider.auth_failed",
        PermissionDenied,
    );
    check(ToolError::NotFound("x".into()), "execution", "tool.not_found", NotFound);
    check(ToolError::InvalidInput("x".into()), "execution", "tool.invalid_input", InvalidInput);
    check(HookError::Panicked("x".into()), "execution", "hook.panicked", Other);
    check(Misuse::Finished("run.started"), "execution", "input.invalid", InvalidInput);
    check(OperatorError::Retryable("x".into()), "execution", "operator.retryable", Other);
    check(EnvError::ProvisionFailed("x".into()), "execution", "env.provision_failed", Other);
    check(
        OrchError::OperatorNotFound("x".into()),
        "execution",
        "orch.operator_not_found",
        NotFound,
    );
    check(StateError::WriteFailed("x".into()), "storage", "state.write_failed", Other);
    check(StateError::Serialization("x".into()), "storage", "state.serialization", InvalidData);
    check(EventKind::decode("x", "{}").unwrap_err(), "storage", "log.unreadable", InvalidData);
    check(ImageError::UnknownFormat, "configuration", "input.invalid", InvalidInput);
    let moment: Result<Timestamp, _> = "soon".parse();
    check(moment.unwrap_err(), "configuration", "config.invalid", InvalidInput);
    let diverged = || Divergence::new(7, "x", Default::default(), Default::default());
    check(diverged(), "replay", "replay.diverged", InvalidData);
    check(ResumeError::from(diverged()), "replay", "replay.diverged", InvalidData);
    let gone = || LogError::NotFound("run_1".into());
    check(ResumeError::from(gone()), "storage", gone().code(), NotFound);
    check(LogError::Full("quota".into()), "storage", "store.full", io::ErrorKind::StorageFull);
}

/// Spec: E12, E7. The hint of the innermost failure is that of everything around it.
#[tokio::test]
async fn a_hint_reaches_the_application() {
    let closed = ClosedPort::bind();
    let model = OpenAi::new("m").base_url(closed.url()).build().unwrap();
    let retry = RetryConfig::new().attempts(1);
    let agent = Agent::builder(model).retry(retry).build().unwrap();
    let expected = format!("is it running? base_url is `{}`", closed.url());
    let failure = agent.run("x").await.unwrap_err();
    assert_eq!(failure.hint(), expected);
    let error = OrchError::from(OperatorError::from(failure));
    assert_eq!(layer0::failure::hint(&error), expected);
    assert_eq!(Error::from(error).hint(), expected);
    let failure = agent.run("x").await.unwrap_err();
    assert_eq!(Error::from(failure).hint(), expected);
}
