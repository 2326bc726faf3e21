//! The category of each error of the parts in the facade's one error.

use std::io::ErrorKind::{self, InvalidData, InvalidInput, NotFound};

use backstop::behaviors::{HostError, RedeliverError, read_delivery_id};
use backstop::layer0::error::{EnvError, OperatorError, OrchError, StateError};
use backstop::layer0::failure::{Failure, chain};
use backstop::layer0::name::check_name;
use backstop::layer0::orchestrator::UnknownOperator;
use backstop::orchestrator::WorkflowRecordError;
use backstop::react::{BuildError, DecideError, RequestError, ResumeError};
use backstop::{
    AgentError, ApprovalNotFound, Error, HookError, OperatorNameError, PackError, ProviderError,
    ToolError,
};
use backstop_event_log::{LogError, Pattern};

/// Checks the category, the leaf and the kind of an error.
#[track_caller]
fn check(error: impl Into<Error>, category: &str, leaf: &str, kind: ErrorKind) {
    let error = error.into();
    let texts = chain(&error);
    assert_eq!((&*texts[0], &*texts[1]), (category, leaf), "{texts:?}");
    let distinct: std::collections::BTreeSet<&String> = texts.iter().collect();
    assert_eq!(distinct.len(), texts.len(), "a text is repeated: {texts:?}");
    assert!(!error.hint().is_empty() && !error.is_retryable());
    assert!(layer0::code::find(error.code()).is_some(), "{}", error.code());
    assert_eq!(std::io::Error::from(error).kind(), kind);
}

/// Spec: E12
#[test]
fn patterns_are_of_the_pattern_category() {
    let events = "run.faild".parse::<Pattern>().unwrap_err();
    check(events, "pattern", "invalid event pattern", InvalidInput);
    let grant = backstop::Grants::parse(["fs:read:/a/***"]).unwrap_err();
    check(grant, "pattern", "invalid grant", InvalidInput);
}

/// Spec: E12
#[test]
fn names_that_clash_are_of_registration() {
    let twice = || HostError::Duplicate("alarm".into());
    check(twice(), "registration", "the behaviour cannot be registered", InvalidInput);
    let unnamed = || check_name(" ").unwrap_err();
    let behavior = HostError::Name(unnamed());
    check(behavior, "registration", "the behaviour cannot be registered", InvalidInput);
    let operator = OperatorNameError::Duplicate("a".into());
    check(operator, "registration", "the operator cannot be registered", InvalidInput);
    let hook = BuildError::DuplicateHook("a".into());
    check(hook, "registration", "the part cannot be registered", InvalidInput);
    let hook = BuildError::HookName(unnamed());
    check(hook, "registration", "the part cannot be registered", InvalidInput);
}

/// Spec: E12
#[test]
fn missing_names_are_of_registration() {
    let missing = RedeliverError::UnknownBehavior("alarm".into());
    check(missing, "registration", "no behaviour named `alarm`", NotFound);
    check(UnknownOperator::new("a", None), "registration", "unknown operator", NotFound);
}

/// Spec: E12
#[test]
fn deliveries_have_a_category_by_what_is_wrong() {
    let unknown = RedeliverError::NotFound("alarm/run_1/7".into());
    check(unknown, "storage", "no such delivery in the event log", NotFound);
    check(
        RedeliverError::OwnEvent("alarm".into()),
        "execution",
        "nothing was delivered",
        InvalidInput,
    );
    let id = || read_delivery_id("x").unwrap_err();
    check(id(), "configuration", "invalid configuration", InvalidInput);
    check(RedeliverError::from(id()), "configuration", "invalid configuration", InvalidInput);
    check(RedeliverError::from(LogError::Closed), "storage", "event log failed", ErrorKind::Other);
}

/// Spec: E12
#[tokio::test]
async fn records_that_diverge_are_of_replay() {
    let diverged = || backstop::react::Divergence::new(7, "x", "a".into(), "b".into());
    check(ResumeError::from(diverged()), "replay", "replay diverged", InvalidData);
    let unread = WorkflowRecordError::from(LogError::Closed);
    check(unread, "storage", "event log failed", ErrorKind::Other);
}

/// Spec: E12
#[test]
fn what_was_not_carried_out_is_of_execution() {
    let missing = || ApprovalNotFound::new("apr_1".into());
    check(missing(), "execution", "nothing to decide", NotFound);
    check(DecideError::from(missing()), "execution", "nothing to decide", NotFound);
    check(DecideError::Blank("by"), "execution", "nothing is decided", InvalidInput);
    let agent = AgentError::InputValidation("it is empty".into());
    check(agent, "execution", "agent failed", InvalidInput);
    let model = ProviderError::not_found("no such model");
    check(model, "execution", "model call failed", NotFound);
    check(ToolError::Cancelled, "execution", "tool failed", ErrorKind::Other);
    check(HookError::Panicked("x".into()), "execution", "hook failed", ErrorKind::Other);
    let operator = OperatorError::NonRetryable("x".into());
    check(operator, "execution", "operator failed", ErrorKind::Other);
    let dispatch = OrchError::OperatorNotFound("x".into());
    check(dispatch, "execution", "dispatch failed", NotFound);
    let environment = EnvError::CredentialFailed("x".into());
    check(environment, "execution", "environment failed", ErrorKind::Other);
}

/// Spec: E12
#[test]
fn stores_are_of_storage() {
    check(LogError::NotFound("run_1".into()), "storage", "event log failed", NotFound);
    check(StateError::Serialization("x".into()), "storage", "state store failed", InvalidData);
}

/// Spec: E12, E6. The facts of a category are those of the error inside.
#[test]
fn categories_keep_facts() {
    let busy = || StateError::WriteFailed("busy".into());
    let error = Error::from(busy());
    assert_eq!((error.code(), error.retry()), (busy().code(), busy().retry()));
    assert!(error.is_retryable());
}

/// Spec: E12
#[test]
fn packs_have_their_own_category() {
    fn converts<E: Into<Error>>() {}
    converts::<PackError>();
}

/// Spec: E6, E12. An error has one hint, whether it is asked itself or as a failure.
#[test]
fn hints_are_kept_as_failures() {
    #[track_caller]
    fn check(error: impl Into<Error>, hint: &str) {
        let error = error.into();
        let texts = (error.hint(), layer0::failure::hint(&error).into_owned());
        assert_eq!(texts, (hint.to_owned(), hint.to_owned()), "{error:#}");
    }
    check(
        HostError::Duplicate("alarm".into()),
        "give every part a name of its own and a valid schema",
    );
    check(
        backstop::Grants::parse(["fs:read:/a/***"]).unwrap_err(),
        "write `kind:operation:pattern`, as in `fs:read:/data/**`",
    );
    check("run.faild".parse::<Pattern>().unwrap_err(), "did you mean `run.failed`?");
    check(read_delivery_id("x").unwrap_err(), "take it from `Delivery::id`");
    check(
        OperatorNameError::Duplicate("a".into()),
        "give every operator a name of its own and valid schemas",
    );
    check(
        RedeliverError::UnknownBehavior("alarm".into()),
        "register the behaviour before it is named",
    );
    check(ApprovalNotFound::new("apr_1".into()), "list what is open; an approval is decided once");
    let session = layer0::name::check_session("").unwrap_err();
    check(RequestError::from(session), "give it a short name, such as the number of a ticket");
}
