//! Operators within walls.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_environment::{Network, Rules};
use layer0::error::{EnvError, OperatorError};
use layer0::operator::{Answer, Context, OperatorProgram, Task};
use layer0::{Environment, Failure, Operator};
use serde_json::json;

use crate::support::{block_on, has_python, variables, walls};

/// An operator that is a program of Python, or runs here.
struct Worker(Option<&'static str>);

#[async_trait]
impl Operator for Worker {
    fn name(&self) -> &str {
        "worker"
    }

    fn program(&self) -> Option<OperatorProgram> {
        let arguments = ["-c".to_owned(), self.0?.to_owned()];
        Some(OperatorProgram::new("python3", arguments, "/", variables()))
    }

    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        unreachable!("it runs in walls")
    }
}

async fn asked(rules: Rules, worker: Option<&'static str>) -> Result<Answer, EnvError> {
    walls(rules).run(Arc::new(Worker(worker)), Task::json(json!([20, 22])), Context::root()).await
}

/// Spec: N3
pub(crate) fn answer_comes_from_the_program() {
    if !has_python() {
        return;
    }
    block_on(async {
        let rules = || Rules::new().files().network(Network::None);
        let sum = "import json; print('noise'); print(json.dumps({'output': sum(json.loads(input())['input'])}))";
        assert_eq!(asked(rules(), Some(sum)).await.unwrap().output, json!(42));
        let failing = "print('{\"error\": {\"code\": \"bad\", \"message\": \"no such sum\"}}')";
        let error = asked(rules(), Some(failing)).await.unwrap_err();
        assert!(error.what().contains("bad: no such sum"), "{}", error.what());
        for (unfit, part) in [
            ("pass", "there is none"),
            ("print('[]')", "its answer cannot be read"),
            ("print('{\"output\": 1}'); raise SystemExit(3)", "ended with exit status 3"),
        ] {
            let error = asked(rules(), Some(unfit)).await.unwrap_err();
            assert!(matches!(error, EnvError::OperatorError(_)), "{error:?}");
            assert!(error.what().contains(part), "{}", error.what());
        }
    });
}

/// Spec: N3
pub(crate) fn wall_is_the_reason_of_failure() {
    if !has_python() {
        return;
    }
    block_on(async {
        let rules = || Rules::new().files().network(Network::None);
        let error = asked(rules(), Some("open('/etc/shadow')")).await.unwrap_err();
        assert_eq!(error.what(), "`/etc/shadow` is not granted: read none, write none");
        let asking = "import urllib.request; urllib.request.urlopen('http://example.org/')";
        let error = asked(rules(), Some(asking)).await.unwrap_err();
        assert_eq!(error.code(), "env.network_denied");
    });
}

/// Spec: N3
pub(crate) fn operator_of_this_process_is_refused() {
    let error = block_on(asked(Rules::new(), None)).unwrap_err();
    assert_eq!(error.code(), "env.provision_failed");
    assert!(error.what().starts_with("operator `worker` runs in this process"), "{error}");
}
