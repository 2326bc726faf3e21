//! The errors that a caller finds along a chain of sources.

use std::error::Error as StdError;
use std::path::Path;

use backstop::behaviors::{InvalidDeliveryId, RedeliverError};
use backstop::layer0::error::{BoxError, EnvError, OperatorError, OrchError, StateError};
use backstop::layer0::event::{DecodeError, EventKind};
use backstop::layer0::failure::{Effect, Failure, Retry, chain, sources};
use backstop::layer0::message::ImageError;
use backstop::layer0::name::NameError;
use backstop::orchestrator::WorkflowRecordError;
use backstop::react::{Divergence, ResumeError};
use backstop::tool::{NotShown, Tool, ToolError, Toolset};
use backstop::{
    Agent, AgentError, Error, HookError, ProviderError, RetryConfig, RunFailure, ScriptedProvider,
};
use backstop_event_log::LogError;
use regex::Regex;

/// Checks that a chain holds an error of the type, and repeats no text.
#[track_caller]
fn check<T: StdError + 'static>(error: &(dyn StdError + 'static)) {
    let texts = chain(error);
    let name = std::any::type_name::<T>();
    assert!(sources(error).any(|cause| cause.is::<T>()), "no `{name}` in {texts:?}");
    let distinct: std::collections::BTreeSet<&String> = texts.iter().collect();
    assert_eq!(distinct.len(), texts.len(), "a text is repeated: {texts:?}");
}

fn refused() -> ProviderError {
    ProviderError::AuthFailed("no key".into())
}

/// Spec: E5, E7
#[test]
fn provider_errors_are_found_in_every_chain() {
    check::<ProviderError>(&AgentError::Llm(refused()));
    check::<ProviderError>(&OperatorError::from(AgentError::Llm(refused())));
    check::<ProviderError>(&OrchError::from(AgentError::Llm(refused())));
    for error in [
        Error::from(AgentError::Llm(refused())),
        Error::from(refused()),
        Error::from(OrchError::from(AgentError::Llm(refused()))),
        Error::from(EnvError::from(AgentError::Llm(refused()))),
    ] {
        check::<ProviderError>(&error);
        assert_eq!((error.code(), error.is_retryable()), ("provider.auth_failed", false));
    }
}

/// Spec: E5
#[tokio::test]
async fn a_failed_run_is_found_upward() {
    /// Runs an agent inside of an operator, an orchestrator and an environment.
    async fn fail<E: From<RunFailure>>() -> Result<(), E> {
        let retry = RetryConfig::new().attempts(1);
        let agent = Agent::builder(ScriptedProvider::new(Vec::new())).retry(retry).build();
        agent.unwrap().run("x").await?;
        Ok(())
    }
    #[track_caller]
    fn holds_all(error: &(impl Failure + 'static)) {
        check::<RunFailure>(error);
        check::<AgentError>(error);
        check::<ProviderError>(error);
        assert_eq!((error.code(), error.is_retryable()), ("provider.other", false));
    }
    holds_all(&fail::<Error>().await.unwrap_err());
    holds_all(&fail::<OperatorError>().await.unwrap_err());
    holds_all(&fail::<OrchError>().await.unwrap_err());
    holds_all(&fail::<EnvError>().await.unwrap_err());
    holds_all(&fail::<ResumeError>().await.unwrap_err());
}

/// Spec: E5
#[test]
fn every_wrapper_leads_to_its_error() {
    let undecoded = || EventKind::decode("x", "{}").unwrap_err();
    check::<DecodeError>(&LogError::unreadable(7, undecoded()));
    let diverged = || Divergence::new(7, "x", Default::default(), Default::default());
    check::<Divergence>(&ResumeError::from(diverged()));
    check::<Divergence>(&Error::from(ResumeError::from(diverged())));
    check::<EnvError>(&ToolError::from(EnvError::ProvisionFailed("x".into())));
    check::<ImageError>(&NotShown::from(ImageError::NotBase64));
    check::<InvalidDeliveryId>(&RedeliverError::from(
        backstop::behaviors::read_delivery_id("x").unwrap_err(),
    ));
    check::<LogError>(&RedeliverError::from(LogError::Closed));
    check::<LogError>(&WorkflowRecordError::from(LogError::Closed));
    let unnamed = Toolset::new().with(Nameless(backstop::tool::ToolSpec::new(
        " ",
        "",
        serde_json::json!({}),
    )));
    check::<NameError>(&unnamed.unwrap_err());
    check::<HookError>(&Error::from(HookError::Panicked("x".into())));
    check::<ToolError>(&Error::from(ToolError::Cancelled));
    check::<OperatorError>(&Error::from(OperatorError::Retryable("x".into())));
}

/// A tool whose name is no name.
struct Nameless(backstop::tool::ToolSpec);

#[async_trait::async_trait]
impl Tool for Nameless {
    fn spec(&self) -> &backstop::tool::ToolSpec {
        &self.0
    }

    async fn call(
        &self,
        _: &backstop::tool::Arguments,
        _: &backstop::ToolContext,
    ) -> Result<layer0::JsonText, ToolError> {
        Err(ToolError::Cancelled)
    }
}

/// Spec: E5, E6
#[test]
fn state_and_environment_errors_keep_their_facts() {
    fn write() -> Result<(), OperatorError> {
        Err(StateError::WriteFailed("busy".into()))?
    }
    let failed = write().unwrap_err();
    check::<StateError>(&failed);
    assert_eq!((failed.code(), failed.is_retryable()), ("state.write_failed", true));
    assert_eq!((failed.retry(), failed.effect()), (Retry::Backoff, Effect::None));
    fn provision(error: EnvError) -> Result<(), OperatorError> {
        Err(error)?
    }
    let failed = provision(EnvError::NetworkDenied("example.org".into())).unwrap_err();
    check::<EnvError>(&failed);
    assert_eq!((failed.code(), failed.is_retryable()), ("env.network_denied", false));
    assert_eq!(failed.effect(), Effect::Unknown);
    let busy = OperatorError::Retryable("busy".into());
    let failed = provision(EnvError::from(busy)).unwrap_err();
    assert_eq!((failed.code(), failed.is_retryable()), ("operator.retryable", true));
}

/// Variants whose error inside is of no public type.
const TRANSPARENT: &[&str] = &["tool/src/validate.rs"];

/// Spec: E5. A box or a transparent variant keeps a caller from the error inside.
#[test]
fn no_wrapper_hides_its_source() {
    let boxed = Regex::new(r"#\[(?:source|from)\]\s*(?:\w+:\s*)?(?:Box|Arc)<[A-Z]").unwrap();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut hidden: Vec<String> = Vec::new();
    visit(&crates, &mut |path, text| {
        let place = path.strip_prefix(&crates).unwrap().display().to_string();
        let is_transparent = text.contains("#[error(transparent)]");
        if boxed.is_match(text) || (is_transparent && !TRANSPARENT.contains(&&*place)) {
            hidden.push(place);
        }
    });
    assert_eq!(hidden, Vec::<String>::new());
}

/// Reads every Rust file in the `src` folders below a folder.
fn visit(folder: &Path, read: &mut dyn FnMut(&Path, &str)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(&path, read);
        } else if path.extension().is_some_and(|end| end == "rs")
            && path.iter().any(|part| part == "src")
        {
            read(&path, &std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// Spec: E5. An error without facts is reachable as well.
#[test]
fn boxed_errors_are_found() {
    let inner: BoxError = Box::new(std::io::Error::other("odd"));
    check::<std::io::Error>(&OperatorError::from(inner));
}
