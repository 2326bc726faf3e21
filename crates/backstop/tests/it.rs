//! The facade's error, as an application meets it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::error::Error as _;
use std::io;

use backstop::layer0::failure::chain;
use backstop::{
    Agent, ApprovalDesk, Budget, Database, Error, Limits, Pack, RetryConfig, ScriptedProvider,
    StoreUrl, tool,
};

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
async fn mistakes_have_a_category_a_reason_and_a_hint() {
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
    let limits = Limits { max_iterations: 0, ..Default::default() };
    check(
        fails(builder().limits(limits)),
        "configuration: invalid configuration: `max_iterations` must be at least 1",
        "in its bounds",
        InvalidInput,
    );
    let budget = Budget { max_cost_usd: Some(1.0), ..Default::default() };
    let error = fails(builder().budget(budget));
    assert!(matches!(error, Error::Configuration(_)), "{error:?}");
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
        "pack: pack `math` brings `add`, which is there already",
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
    let retry = RetryConfig { attempts: 1, ..Default::default() };
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
