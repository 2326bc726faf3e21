//! Supervision of a program until its end.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use tokio::process::Child;
use tokio::sync::watch;

use super::Ended;
use super::parent::Channel;
use crate::Rules;
use crate::plan::Report;
use crate::proxy::{Note, Notes};
use crate::support::Groups;

/// Signals of the kernel for reached limits, and the one that kills: signal(7).
const XCPU: i32 = 24;
const XFSZ: i32 = 25;
const KILL: i32 = 9;

/// The parts that are needed to follow a program.
pub(super) struct Following {
    pub(super) channel: Channel,
    pub(super) helper: Child,
    pub(super) groups: Groups,
    pub(super) rules: Rules,
    pub(super) notes: Arc<Notes>,
}

/// The reports of the helper.
#[derive(Default)]
struct Reported {
    ended: Option<Ended>,
    forks_refused: u64,
    killed_for_memory: u64,
}

impl Following {
    /// Serves the program's proxy, if it has one, and sends the end of the program.
    pub(super) async fn run(
        mut self,
        proxy: Option<impl Future<Output = ()>>,
        end: watch::Sender<Option<Result<Ended, String>>>,
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
        let killed = || Ended::new(None, Some(KILL), Duration::ZERO);
        let ended = reported.ended.clone().unwrap_or_else(killed);
        for limit in limits(&self.rules, &ended, &reported) {
            self.notes.add(Note::Limit(limit));
        }
        let failed = waited.map_err(|error| error.to_string());
        let _ = end.send(Some(read.and(failed).map(|_| ended)));
    }

    fn limit(&self, what: String) {
        self.notes.add(Note::Limit(what + " reached"));
    }
}

/// Reads reports until the whole helper has ended.
async fn read(channel: &mut Channel, reported: &mut Reported) -> Result<(), String> {
    loop {
        match channel.receive().await {
            Ok(Some((Report::Ended { code, signal, cpu_ms }, _))) => {
                reported.ended = Some(Ended::new(code, signal, Duration::from_millis(cpu_ms)));
            }
            Ok(Some((Report::Closed { forks_refused, killed_for_memory }, _))) => {
                (reported.forks_refused, reported.killed_for_memory) =
                    (forks_refused, killed_for_memory);
            }
            Ok(Some((Report::Failed { mechanism, detail }, _))) => {
                return Err(format!("{mechanism}: {detail}"));
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Returns the reached limits, with the usage if it is known.
fn limits(rules: &Rules, ended: &Ended, reported: &Reported) -> Vec<String> {
    let mut limits = Vec::new();
    if let Some(most) = rules.cpu {
        let is_used = ended.signal == Some(KILL) && ended.cpu >= most;
        if ended.is_by(XCPU) || is_used {
            // The kernel has counted at least this much, even if some processes were not waited for.
            let (most, used) = (most.as_millis(), ended.cpu.max(most).as_millis());
            limits.push(format!("cpu {most} ms reached: {used} ms used"));
        }
    }
    if let Some(most) = rules.memory_mib
        && reported.killed_for_memory > 0
    {
        limits.push(format!("memory {most} MiB reached"));
    }
    if let Some(most) = rules.file_mib
        && ended.is_by(XFSZ)
    {
        limits.push(format!("file size {most} MiB reached"));
    }
    if let Some(most) = rules.processes
        && reported.forks_refused > 0
    {
        limits.push(format!("processes {most} reached"));
    }
    limits
}
