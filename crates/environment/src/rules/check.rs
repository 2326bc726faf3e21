//! Checks of rules that do not depend on the machine.

use std::time::Duration;

use layer0::error::EnvError;

use super::listed::{ListedPaths, resolve_listed_paths};
use super::{HostRule, Network, Rules};

/// Minimum memory, in MiB: the helper needs some memory too.
const LEAST_MEMORY_MIB: u64 = 16;

/// Checks rules, and returns their host entries and listed paths.
pub(crate) fn check(rules: &Rules) -> Result<(Vec<HostRule>, ListedPaths), EnvError> {
    let hosts = check_network(rules).map_err(EnvError::ProvisionFailed)?;
    check_limits(rules).map_err(EnvError::ProvisionFailed)?;
    Ok((hosts, resolve_listed_paths(rules)?))
}

fn check_network(rules: &Rules) -> Result<Vec<HostRule>, String> {
    let Network::Hosts(hosts) = &rules.network else {
        if rules.private {
            let why =
                "private addresses are granted, but no hosts are listed that may lead to them";
            return Err(why.to_owned());
        }
        return Ok(Vec::new());
    };
    if hosts.is_empty() {
        return Err("the network is of hosts, but none is listed: say none".to_owned());
    }
    hosts.iter().map(|host| HostRule::parse(host)).collect()
}

fn check_limits(rules: &Rules) -> Result<(), String> {
    let counts = [
        ("processes", rules.processes),
        ("file size", rules.file_mib),
        ("output", rules.output_kib),
    ];
    let times = [("cpu", rules.cpu), ("wall", rules.wall)];
    let zero = counts.iter().find(|(_, most)| *most == Some(0)).map(|(name, _)| name);
    let zero = zero.or_else(|| {
        times.iter().find(|(_, most)| *most == Some(Duration::ZERO)).map(|(name, _)| name)
    });
    if let Some(name) = zero {
        return Err(format!("limit `{name}` is 0: nothing can run"));
    }
    match rules.memory_mib {
        Some(most) if most < LEAST_MEMORY_MIB => {
            Err(format!("limit `memory` is {most} MiB: the least is {LEAST_MEMORY_MIB} MiB"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rules: Rules) -> String {
        check(&rules).unwrap_err().what().into_owned()
    }

    /// Spec: N1
    #[test]
    fn contradicting_rules_are_refused() {
        let hosts =
            |hosts: &[&str]| Network::Hosts(hosts.iter().map(|host| (*host).to_owned()).collect());
        for (rules, part) in [
            (Rules::new().network(hosts(&[])), "none is listed"),
            (Rules::new().network(hosts(&["http://a"])), "`http://a` is no host"),
            (Rules::new().network(Network::None).private(), "no hosts are listed"),
            (Rules::new().processes(0), "limit `processes` is 0"),
            (Rules::new().cpu(Duration::ZERO), "limit `cpu` is 0"),
            (Rules::new().memory_mib(1), "the least is 16 MiB"),
            (
                Rules::new().read(["/not/there"]),
                "`/not/there` is listed, but cannot be reached: No such",
            ),
            (Rules::new().write(["not/there"]), "`not/there` is listed"),
        ] {
            assert!(refused(rules.clone()).contains(part), "{}", refused(rules));
        }
        assert!(check(&Rules::new().read(["/usr"])).is_ok());
    }
}
