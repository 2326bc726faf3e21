//! The text that lists what rules grant.

use std::path::PathBuf;

use super::enforcement::{Enforcement, RuleKind};
use crate::{Network, Rules};

impl Rules {
    /// Returns the grants of the rules on one line, such as `read ./data, write none; network none`; `None` if there
    /// are no rules. It is for a program that failed for a reason that nothing outside of the program saw: the reader
    /// decides whether a wall was the reason.
    ///
    /// ```
    /// use backstop_environment::{Network, Rules};
    ///
    /// let rules = Rules::new().read(["./data"]).network(Network::None).processes(4);
    /// assert_eq!(rules.describe_grants().as_deref(), Some("read ./data, write none; network none; processes 4"));
    /// assert_eq!(Rules::new().describe_grants(), None);
    /// ```
    #[must_use]
    pub fn describe_grants(&self) -> Option<String> {
        self.describe(|_| Enforcement::Full)
    }

    /// Returns the grants of the rules, each by its enforcement.
    pub(crate) fn describe(&self, enforcement: impl Fn(RuleKind) -> Enforcement) -> Option<String> {
        let files = self
            .is_file_walled()
            .then(|| format!("read {}, write {}", list(&self.read), list(&self.write)));
        let network = match &self.network {
            Network::All => None,
            Network::Hosts(hosts) => Some(format!("network {}", hosts.join(", "))),
            Network::Loopback => Some("network loopback".to_owned()),
            Network::None => Some("network none".to_owned()),
        };
        let all = [
            (RuleKind::Files, files),
            (RuleKind::Network, network),
            (RuleKind::Cpu, self.cpu.map(|most| format!("cpu {} ms", most.as_millis()))),
            (RuleKind::Memory, self.memory_mib.map(|most| format!("memory {most} MiB"))),
            (RuleKind::Processes, self.processes.map(|most| format!("processes {most}"))),
            (RuleKind::FileSize, self.file_mib.map(|most| format!("file size {most} MiB"))),
            (RuleKind::Wall, self.wall.map(|most| format!("wall {} ms", most.as_millis()))),
        ];
        let enforced = all.into_iter().filter_map(|(rule, text)| match enforcement(rule) {
            Enforcement::Full => text,
            Enforcement::Partial => text.map(|text| text + " (in part)"),
            Enforcement::None => None,
        });
        let enforced: Vec<String> = enforced.collect();
        (!enforced.is_empty()).then(|| enforced.join("; "))
    }
}

fn list(paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return "none".to_owned();
    }
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}
