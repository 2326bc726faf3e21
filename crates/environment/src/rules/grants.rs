//! The text that lists what rules grant.

use std::path::PathBuf;

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
        let files = self
            .is_file_walled()
            .then(|| format!("read {}, write {}", list(&self.read), list(&self.write)));
        let network = match &self.network {
            Network::All => None,
            Network::Hosts(hosts) => Some(format!("network {}", hosts.join(", "))),
            Network::Loopback => Some("network loopback".to_owned()),
            Network::None => Some("network none".to_owned()),
        };
        let limits = [
            self.cpu.map(|most| format!("cpu {} ms", most.as_millis())),
            self.memory_mib.map(|most| format!("memory {most} MiB")),
            self.processes.map(|most| format!("processes {most}")),
            self.file_mib.map(|most| format!("file size {most} MiB")),
            self.wall.map(|most| format!("wall {} ms", most.as_millis())),
        ];
        let all: Vec<String> = [files, network].into_iter().chain(limits).flatten().collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

fn list(paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return "none".to_owned();
    }
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}
