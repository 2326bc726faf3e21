//! `[environment]` of agent files.

use backstop_config::{AgentFile, NetworkRule};
use backstop_process::Credential;

use crate::{agent_error, written};

const BEFORE: &str = "[model]\nprovider = \"script\"\n[environment]\n";

/// Spec: N1
#[test]
fn rules_are_read() {
    let (_folder, path) = written(
        "[model]\nprovider = \"script\"\n\
         [environment]\nnetwork = { hosts = [\"api.example.com\", \"*.example.org\"] }\n\
         read = [\"./data\"]\nwrite = []\ncpu_ms = 60000\nmemory_mib = 512\nprocesses = 16\n\
         file_mib = 10\noutput_kib = 64\ncredentials = { API_TOKEN = \"env:TOKEN\" }\n\
         [[tools]]\nkind = \"command\"\nname = \"a\"\nenvironment = { network = \"loopback\", best_effort = true }\n",
    );
    let file = AgentFile::read(&path).unwrap();
    let rules = file.environment.as_ref().unwrap();
    let hosts = ["api.example.com", "*.example.org"].map(str::to_owned).to_vec();
    assert_eq!(rules.network, Some(NetworkRule::Hosts(hosts)));
    assert_eq!((rules.read.as_ref().unwrap().len(), rules.write.as_ref().unwrap().len()), (1, 0));
    assert_eq!(
        (rules.cpu_ms, rules.memory_mib, rules.processes),
        (Some(60_000), Some(512), Some(16))
    );
    assert_eq!((rules.file_mib, rules.output_kib), (Some(10), Some(64)));
    assert_eq!(rules.credentials["API_TOKEN"], Credential::env("TOKEN"));
    assert!(!rules.best_effort);
    let own = file.tools[0].environment.as_ref().unwrap();
    assert_eq!((own.network.as_ref(), own.best_effort), (Some(&NetworkRule::Loopback), true));
    let recorded = AgentFile::from_record(&path, file.source().clone()).unwrap();
    assert_eq!(recorded.environment, file.environment);
}

/// Spec: N1, C5
#[test]
fn mistakes_of_rules_name_their_line() {
    for (table, line, what) in [
        ("network = \"some\"", 4, "`network` must be a rule, and is \"some\""),
        ("network = { hosts = [] }", 4, "`network` must name a host"),
        ("network = { hosts = [\"http://a.b/\"] }", 4, "`http://a.b/` is none"),
        ("network = 3", 4, "`network` must be a rule"),
        ("cpu_ms = 0", 4, "`cpu_ms` must be at least 1"),
        ("cpu = 1", 4, "unknown field `cpu`"),
        ("credentials = { A = \"secret-value\" }", 4, "must say where a credential is"),
    ] {
        let error = agent_error(&format!("{BEFORE}{table}\n"));
        assert_eq!(error.line(), Some(line), "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert!(!error.hint().unwrap_or_default().is_empty(), "{error}");
        assert!(!error.to_string().contains("secret-value"), "{error}");
    }
}
