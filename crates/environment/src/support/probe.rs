//! Run of the helper that tries each mechanism.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use layer0::error::EnvError;

use super::groups::Homes;
use super::mechanism::{Mechanism, SupportRow};
use super::mend;
use crate::Helper;
use crate::helper::names::OUTER;
use crate::message::{HEAD, encode, length};
use crate::plan::{Outer, Probed, Report};

/// Time limit of each answer of the helper.
const LONGEST: Duration = Duration::from_secs(10);

/// The findings of a probe.
pub(super) struct ProbeFindings {
    pub(super) rows: Vec<SupportRow>,
    pub(super) landlock_abi: u32,
    pub(super) homes: Homes,
}

pub(super) fn run(helper: &Helper) -> Result<ProbeFindings, EnvError> {
    let probed = ask(helper).map_err(|error| {
        let helper = helper.path().display();
        EnvError::ProvisionFailed(format!("helper `{helper}` does not answer: {error}"))
    })?;
    Ok(table(&probed, Homes::find()))
}

fn ask(helper: &Helper) -> io::Result<Probed> {
    let (mut channel, theirs) = UnixStream::pair()?;
    channel.set_read_timeout(Some(LONGEST))?;
    let mut child = Command::new(helper.path())
        .arg0(OUTER)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let answer = channel.write_all(&encode(&Outer::Probe)?).and_then(|()| {
        let mut head = [0; HEAD];
        channel.read_exact(&mut head)?;
        let mut body = vec![0; length(head)?];
        channel.read_exact(&mut body)?;
        Ok(serde_json::from_slice(&body)?)
    });
    let _ = child.kill();
    child.wait()?;
    match answer? {
        Report::Probed(probed) => Ok(probed),
        other => Err(io::Error::other(format!("it answered {other:?}"))),
    }
}

fn table(probed: &Probed, homes: Homes) -> ProbeFindings {
    let mut rows = Vec::new();
    let mut add = |mechanism, found: &Option<String>, there: String| {
        let mend = found.as_ref().and_then(|why| mend::find_hint(mechanism, why));
        let detail = found.clone().unwrap_or(there);
        rows.push(SupportRow { mechanism, is_there: found.is_none(), detail, mend });
    };
    let works = || "works".to_owned();
    add(Mechanism::Landlock, &probed.landlock, format!("ABI {}", probed.landlock_abi));
    add(Mechanism::UserNamespace, &probed.user, works());
    add(Mechanism::NetworkNamespace, &probed.network, works());
    add(Mechanism::PidNamespace, &probed.process, works());
    add(Mechanism::Seccomp, &probed.seccomp, works());
    let place = |home: &Result<std::path::PathBuf, String>| match home {
        Ok(path) => (None, format!("below {}", path.display())),
        Err(why) => (Some(why.clone()), String::new()),
    };
    let (missing, there) = place(&homes.pids);
    add(Mechanism::PidsGroup, &missing, there);
    let (missing, there) = place(&homes.memory);
    add(Mechanism::MemoryGroup, &missing, there);
    add(Mechanism::Rlimits, &probed.limits, works());
    let landlock_abi = if probed.landlock.is_none() { probed.landlock_abi } else { 0 };
    ProbeFindings { rows, landlock_abi, homes }
}
