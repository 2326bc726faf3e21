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

/// Signals by which the kernel reports limits and refused calls, and by which it ends: signal(7). A program can send
/// itself each of them (by a timer, by the end of a child process, by a file, by a limit or a filter of its own), so
/// that none is evidence.
const KILL: i32 = 9;
const SYS: i32 = 31;
const XCPU: i32 = 24;
const XFSZ: i32 = 25;

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
    /// The processor time of the program's own process, as the kernel counted it.
    own_cpu: Duration,
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
        for note in collect_notes(&self.rules, &ended, &reported) {
            self.notes.add(note);
        }
        for possible in possible_reasons(&self.rules, &ended, &reported) {
            self.notes.add_possible(possible);
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
            Ok(Some((Report::Ended { code, signal, cpu_ms, own_cpu_ms }, _))) => {
                let cpu = Duration::from_millis(cpu_ms);
                reported.ended = Some(ProgramExit::new(code, signal, cpu));
                reported.own_cpu = Duration::from_millis(own_cpu_ms);
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

/// Returns the walls that the kernel counted. The program's own output, exit status and signals are not used.
fn collect_notes(rules: &Rules, ended: &ProgramExit, reported: &Reported) -> Vec<Intervention> {
    let mut notes: Vec<Intervention> =
        limits(rules, ended, reported).into_iter().map(Intervention::Limit).collect();
    let unrouted = reported.counted.unrouted;
    if unrouted > 0 {
        notes.push(Intervention::Unrouted(describe_unrouted(&rules.network, unrouted)));
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

/// Returns the limits that the program has reached, as the kernel counted it.
fn limits(rules: &Rules, ended: &ProgramExit, reported: &Reported) -> Vec<String> {
    let (used, counted) = (reported.own_cpu, &reported.counted);
    let mut limits = Vec::new();
    if let Some(most) = rules.cpu
        && is_cpu_reached(most, ended, reported)
    {
        limits.push(format!("cpu {} ms reached: {} ms used", most.as_millis(), used.as_millis()));
    }
    if let Some(most) = rules.memory_mib
        && counted.killed_for_memory > 0
    {
        limits.push(format!("memory {most} MiB reached"));
    }
    if let Some(most) = rules.processes
        && counted.forks_refused > 0
    {
        limits.push(format!("processes {most} reached"));
    }
    limits
}

/// Returns whether a process was ended after it used the time of the limit, which is one of each process. Neither the
/// signal alone nor the time of several processes shows that.
fn is_cpu_reached(most: Duration, ended: &ProgramExit, reported: &Reported) -> bool {
    matches!(ended.signal, Some(KILL | XCPU)) && reported.own_cpu >= most
}

/// Returns the walls that may have sent the signal that ended the program.
fn possible_reasons(rules: &Rules, ended: &ProgramExit, reported: &Reported) -> Vec<String> {
    let mut reasons = Vec::new();
    if ended.looks_like(XCPU)
        && let Some(most) = rules.cpu
        && !is_cpu_reached(most, ended, reported)
    {
        let used = ended.cpu.as_millis();
        reasons.push(format!("cpu {} ms ({ended}, {used} ms used in all)", most.as_millis()));
    }
    if ended.looks_like(XFSZ)
        && let Some(most) = rules.file_mib
    {
        reasons.push(format!("file size {most} MiB ({ended})"));
    }
    if ended.looks_like(SYS) {
        reasons.push(format!("a 32-bit program, whose system calls are refused ({ended})"));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: Option<i32>, signal: Option<i32>) -> ProgramExit {
        ProgramExit::new(code, signal, Duration::from_secs(5))
    }

    fn reported(own_cpu_ms: u64, counted: KernelCounts) -> Reported {
        Reported { own_cpu: Duration::from_millis(own_cpu_ms), counted, ..Reported::default() }
    }

    fn rules() -> Rules {
        Rules::new()
            .cpu(Duration::from_secs(1))
            .file_mib(1)
            .memory_mib(64)
            .processes(4)
            .network(Network::None)
    }

    /// Spec: N3
    #[test]
    fn only_the_kernels_counts_are_limits() {
        let none = KernelCounts::default();
        let limit = |what: &str| vec![Intervention::Limit(what.to_owned())];
        let cpu = || limit("cpu 1000 ms reached: 1004 ms used");
        for (ended, reported, expected) in [
            (ended(Some(1), None), reported(5_000, none), vec![]),
            (ended(None, Some(XCPU)), reported(1_004, none), cpu()),
            (ended(None, Some(KILL)), reported(1_004, none), cpu()),
            (ended(None, Some(XCPU)), reported(999, none), vec![]),
            (ended(None, Some(KILL)), reported(999, none), vec![]),
            (ended(Some(128 + XCPU), None), reported(1_004, none), vec![]),
            (ended(None, Some(XFSZ)), reported(5, none), vec![]),
            (ended(None, Some(SYS)), reported(5, none), vec![]),
            (
                ended(Some(1), None),
                reported(5, KernelCounts { forks_refused: 2, ..none }),
                limit("processes 4 reached"),
            ),
            (
                ended(Some(1), None),
                reported(5, KernelCounts { killed_for_memory: 1, ..none }),
                limit("memory 64 MiB reached"),
            ),
        ] {
            let notes = collect_notes(&rules(), &ended, &reported);
            assert_eq!(notes, expected, "{ended:?}, {:?}", reported.counted);
        }
    }

    /// Spec: N3
    #[test]
    fn signals_are_possible_reasons() {
        let reported = |own_cpu_ms| reported(own_cpu_ms, KernelCounts::default());
        let cpu = |how: &str| vec![format!("cpu 1000 ms ({how}, 5000 ms used in all)")];
        let refused = "a 32-bit program, whose system calls are refused (signal 31)".to_owned();
        for (ended, reported, expected) in [
            (ended(Some(1), None), reported(5), vec![]),
            (ended(None, Some(KILL)), reported(5), vec![]),
            (ended(None, Some(XCPU)), reported(5), cpu("signal 24")),
            (ended(None, Some(XCPU)), reported(1_004), vec![]),
            (ended(Some(128 + XCPU), None), reported(5), cpu("exit status 152")),
            (ended(None, Some(XFSZ)), reported(5), vec!["file size 1 MiB (signal 25)".to_owned()]),
            (ended(None, Some(SYS)), reported(5), vec![refused]),
        ] {
            assert_eq!(possible_reasons(&rules(), &ended, &reported), expected, "{ended:?}");
        }
        let none = possible_reasons(&Rules::new(), &ended(None, Some(XFSZ)), &reported(5));
        assert!(none.is_empty(), "there is no such limit");
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
