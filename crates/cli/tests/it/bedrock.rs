//! Bedrock, which has several secrets and reads them from AWS's own variables.

use backstop_testkit::{Loopback, Reply, ScriptedEndpoint};
use serde_json::json;

use crate::bench::{Bench, repository};

const SECRETS: [(&str, &str); 2] = [
    ("AWS_SECRET_ACCESS_KEY", "canary-secret-0123456789"),
    ("AWS_SESSION_TOKEN", "canary-token-0123456789"),
];

fn bench() -> Bench {
    let bench =
        Bench::new().with("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE").with("AWS_REGION", "eu-west-1");
    SECRETS.into_iter().fold(bench, |bench, (name, value)| bench.with(name, value))
}

/// Spec: P2, P10, E10
#[test]
fn the_triage_example_runs_over_converse() {
    let script =
        backstop_config::read_script(&repository().join("examples/triage/script.toml")).unwrap();
    let scripted = Bench::new();
    scripted.triage();
    let expected = scripted.run(&["run", "triage/agent.toml", "--json"]).ok().json().remove(0);
    for stream in [true, false] {
        let endpoint = ScriptedEndpoint::bedrock(script.clone());
        let bench = bench();
        let model = format!(
            "provider = \"bedrock\"\nmodel = \"test-model\"\nbase_url = \"{}\"\nstream = {stream}",
            endpoint.base_url()
        );
        let agent =
            bench.triage().replace("provider = \"script\"\nscript = \"script.toml\"", &model);
        bench.write("triage/agent.toml", &agent);
        let report = bench.run(&["run", "triage/agent.toml", "--json"]).ok().json().remove(0);
        assert_eq!(
            report["output"].as_str().unwrap().trim(),
            expected["output"].as_str().unwrap().trim()
        );
        assert_eq!(report["usage"]["input_tokens"], expected["usage"]["input_tokens"]);
        assert_eq!(endpoint.count(), script.len());
        let first = &endpoint.requests()[0];
        assert_eq!(first.path.ends_with("/converse-stream"), stream);
        let signature = first.header("authorization").unwrap();
        assert!(signature.contains("/eu-west-1/bedrock/aws4_request"), "{signature}");
    }
}

/// Spec: E10
#[test]
fn echoed_secret_is_neither_printed_nor_stored() {
    let [(_, secret), (_, token)] = SECRETS;
    let message = format!("the signature of {token} was made with {secret}");
    let server = Loopback::serving(move |_| {
        Reply::json(403, &json!({ "message": message }))
            .header("x-amzn-errortype", "InvalidSignatureException")
    });
    let bench = bench().with("BACKSTOP_LOG", "trace");
    bench.write(
        "agent.toml",
        &format!(
            "[agent]\ninput = \"x\"\n[model]\nprovider = \"bedrock\"\nmodel = \"m\"\nbase_url = \"{}\"\n",
            server.url()
        ),
    );
    let ran = bench.run(&["run", "agent.toml"]).fails(1, "provider.auth_failed");
    for (name, secret) in SECRETS {
        assert!(!format!("{}{}", ran.out, ran.err).contains(secret), "{name}: {}", ran.err);
        for file in bench.files() {
            let bytes = std::fs::read(&file).unwrap();
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{name}: {}", file.display());
        }
    }
}

#[test]
fn missing_settings_fail_before_sending() {
    let agent = "[agent]\ninput = \"x\"\n[model]\nprovider = \"bedrock\"\nmodel = \"m\"\n";
    let bench = Bench::new();
    bench.write("agent.toml", agent);
    bench.run(&["run", "agent.toml"]).fails(2, "AWS_ACCESS_KEY_ID");
    let bench = Bench::new().with("AWS_BEARER_TOKEN_BEDROCK", "canary-key-0123456789");
    bench.write("agent.toml", agent);
    bench.run(&["run", "agent.toml"]).fails(2, "AWS_REGION");
}
