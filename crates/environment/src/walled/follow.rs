//! Supervision of a program until its end.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use tokio::process::Child;
use tokio::sync::watch;

use super::ProgramExit;
use super::parent::ParentChannel;
use crate::plan::{KernelCounts, Report};
use crate::proxy::{Intervention, Interventions};
use crate::support::Groups;
use crate::{Network, Rules};

/// Signals by which the kernel reports limits and refused calls, and by which it ends: signal(7).
const KILL: i32 = 9;
const SYS: i32 = 31;
const XCPU: i32 = 24;
const XFSZ: i32 = 25;

/// The part of its time that a program has used at least when the kernel reports the limit: the limit is counted by
/// ticks, which may miss some of what was used. A program that claims the limit by its exit status has used less.
const MIN_CPU_PART: u32 = 2;

/// The parts that are needed to follow a program.
pub(super) struct Following {
    pub(super) channel: ParentChannel,
    pub(super) helper: Child,
    pub(super) groups: Groups,
    pub(super) rules: Rules,
    pub(super) notes: Arc<Interventions>,
}

/// The reports of the helper.
#[derive(Default)]
struct Reported {
    ended: Option<ProgramExit>,
    counted: KernelCounts,
}

impl Following {
    /// Serves the program's proxy, if it has one, and sends the end of the program.
    pub(super) async fn run(
        mut self,
        proxy: Option<impl Future<Output = ()>>,
        end: watch::Sender<Option<Result<ProgramExit, String>>>,
    ) {
        let mut reported = Reported::default();
        let wall = self.rules.wall;
        let proxy = async {
            match proxy {
                Some(proxy) => proxy.await,
                None => std::future::pending().await,
            }
        };
        let too_long = async {
            match wall {
                Some(wall) => SystemClock.sleep(wall).await,
                None => std::future::pending().await,
            }
        };
        let read = tokio::select! {
            read = read(&mut self.channel, &mut reported) => read,
            () = too_long => {
                self.limit(format!("wall {} ms", wall.unwrap_or_default().as_millis()));
                Ok(())
            }
            () = proxy => Err("the proxy has ended".to_owned()),
        };
        // Remaining processes end with the channel.
        drop(self.channel);
        let waited = self.helper.wait().await;
        drop(self.groups);
        let killed = || ProgramExit::new(None, Some(KILL), Duration::ZERO);
        let ended = reported.ended.clone().unwrap_or_else(killed);
        for note in collect_notes(&self.rules, &ended, &reported.counted) {
            self.notes.add(note);
        }
        let failed = waited.map_err(|error| error.to_string());
        let _ = end.send(Some(read.and(failed).map(|_| ended)));
    }

    fn limit(&self, what: String) {
        self.notes.add(Intervention::Limit(what + " reached"));
    }
}

/// Reads reports until the whole helper has ended.
async fn read(channel: &mut ParentChannel, reported: &mut Reported) -> Result<(), String> {
    loop {
        match channel.receive().await {
            Ok(Some((Report::Ended { code, signal, cpu_ms }, _))) => {
                reported.ended =
                    Some(ProgramExit::new(code, signal, Duration::from_millis(cpu_ms)));
            }
            Ok(Some((Report::Closed(counted), _))) => reported.counted = counted,
            Ok(Some((Report::Failed { mechanism, detail }, _))) => {
                return Err(format!("{mechanism}: {detail}"));
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Returns the kernel's reports from signals and counters. The program's own output is not used.
fn collect_notes(rules: &Rules, ended: &ProgramExit, counted: &KernelCounts) -> Vec<Intervention> {
    let mut notes: Vec<Intervention> =
        limits(rules, ended, counted).into_iter().map(Intervention::Limit).collect();
    if ended.signal == Some(SYS) {
        let why = "a call of another architecture than this machine's 64-bit one ended the program";
        notes.push(Intervention::Call(why.to_owned()));
    }
    if counted.unrouted > 0 {
        notes.push(Intervention::Unrouted(describe_unrouted(&rules.network, counted.unrouted)));
    }
    notes
}

/// Describes attempts to reach the network without the proxy.
fn describe_unrouted(network: &Network, attempts: u64) -> String {
    let granted = match network {
        Network::All => "all hosts".to_owned(),
        Network::Hosts(hosts) => hosts.join(", "),
        Network::Loopback => "the loopback of this machine".to_owned(),
        Network::None => "no host".to_owned(),
    };
    let times = if attempts == 1 { "attempt".to_owned() } else { format!("{attempts} attempts") };
    format!("{times} to reach the network without its proxy, which leads to {granted}")
}

/// Returns the reached limits, with the usage if it is known.
fn limits(rules: &Rules, ended: &ProgramExit, counted: &KernelCounts) -> Vec<String> {
    let mut limits = Vec::new();
    if let Some(most) = rules.cpu {
        let is_killed = ended.signal == Some(KILL) && ended.cpu >= most;
        if is_killed || ended.is_by(XCPU) && ended.cpu >= most / MIN_CPU_PART {
            // The kernel has counted at least this much, even if some processes were not waited for.
            let (most, used) = (most.as_millis(), ended.cpu.max(most).as_millis());
            limits.push(format!("cpu {most} ms reached: {used} ms used"));
        }
    }
    if let Some(most) = rules.memory_mib
        && counted.killed_for_memory > 0
    {
        limits.push(format!("memory {most} MiB reached"));
    }
    if let Some(most) = rules.file_mib
        && ended.signal == Some(XFSZ)
    {
        limits.push(format!("file size {most} MiB reached"));
    }
    if let Some(most) = rules.processes
        && counted.forks_refused > 0
    {
        limits.push(format!("processes {most} reached"));
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: N3
    #[test]
    fn only_the_kernels_reports_are_limits() {
        let rules = Rules::new()
            .cpu(Duration::from_secs(1))
            .file_mib(1)
            .memory_mib(64)
            .processes(4)
            .network(Network::None);
        let none = KernelCounts::default();
        let ended =
            |code, signal, cpu_ms| ProgramExit::new(code, signal, Duration::from_millis(cpu_ms));
        let cpu = Intervention::Limit("cpu 1000 ms reached: 1000 ms used".to_owned());
        let limit = |what: &str| vec![Intervention::Limit(what.to_owned())];
        for (ended, counted, expected) in [
            (ended(Some(1), None, 5_000), none, vec![]),
            (ended(None, Some(XCPU), 990), none, vec![cpu.clone()]),
            (ended(Some(128 + XCPU), None, 990), none, vec![cpu.clone()]),
            (ended(Some(128 + XCPU), None, 5), none, vec![]),
            (ended(None, Some(XCPU), 5), none, vec![]),
            (ended(None, Some(KILL), 1_000), none, vec![cpu]),
            (ended(None, Some(KILL), 5), none, vec![]),
            (ended(None, Some(XFSZ), 5), none, limit("file size 1 MiB reached")),
            (ended(Some(128 + XFSZ), None, 5), none, vec![]),
            (ended(Some(128 + SYS), None, 5), none, vec![]),
            (
                ended(Some(1), None, 5),
                KernelCounts { forks_refused: 2, ..none },
                limit("processes 4 reached"),
            ),
            (
                ended(Some(1), None, 5),
                KernelCounts { killed_for_memory: 1, ..none },
                limit("memory 64 MiB reached"),
            ),
        ] {
            assert_eq!(collect_notes(&rules, &ended, &counted), expected, "{ended:?}, {counted:?}");
        }
        let killed = collect_notes(&rules, &ended(None, Some(SYS), 5), &none);
        assert!(matches!(&killed[..], [Intervention::Call(_)]), "{killed:?}");
    }

    /// Spec: N3
    #[test]
    fn attempts_without_the_proxy_are_described() {
        let hosts = Network::Hosts(vec!["a.example".to_owned(), "b.example".to_owned()]);
        assert_eq!(
            describe_unrouted(&hosts, 2),
            "2 attempts to reach the network without its proxy, which leads to a.example, b.example"
        );
        assert_eq!(
            describe_unrouted(&Network::None, 1),
            "attempt to reach the network without its proxy, which leads to no host"
        );
    }
}
