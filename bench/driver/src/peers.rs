//! Who can take part on this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The programs of all contestants.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) root: PathBuf,
    /// Where Backstop's contestants were built.
    ours: PathBuf,
    /// The versions of rig that were built, the newest first, and where.
    pub(crate) rigs: Vec<(&'static str, PathBuf)>,
    /// Where agentplane was built.
    pub(crate) agentplane: Option<PathBuf>,
    /// Where salvor was built.
    pub(crate) salvor: Option<PathBuf>,
    /// A Python with the peers in it.
    python: Option<PathBuf>,
    /// Who is not here, and why.
    pub(crate) missing: Vec<String>,
}

/// Versions of rig, the newest first, by the feature that builds each.
const RIGS: [(&str, &str); 2] = [("rig-core 0.46", "v0_46"), ("rig-core 0.44", "v0_44")];

/// agentplane, as lines name it.
pub(crate) const AGENTPLANE: &str = "agentplane 0.57";
/// salvor, as lines name it.
pub(crate) const SALVOR: &str = "salvor 0.10";

impl Peers {
    /// Builds and installs each peer that can be. For a glance, only what was built or installed before
    /// takes part beside rig: fetching the others takes longer than measuring.
    pub(crate) fn prepare(root: &Path, quick: bool) -> Result<Self, String> {
        let ours = root.join("target/bench/release");
        let built = |package| build(root, "bench", "target/bench", package, &[]);
        if !(built("contestant-backstop") && built("contestant-hello")) {
            return Err("Backstop's own contestants do not build".to_owned());
        }
        let mut peers = Self {
            root: root.to_owned(),
            ours,
            rigs: Vec::new(),
            agentplane: None,
            salvor: None,
            python: None,
            missing: Vec::new(),
        };
        for (name, feature) in RIGS {
            let target = format!("target/bench-rig-{feature}");
            let newest_is_here = quick && !peers.rigs.is_empty();
            if newest_is_here {
                peers.missing.push(format!("{name}: not for a glance"));
            } else if build(root, "bench", &target, "contestant-rig", &["--features", feature])
                && contends(&root.join(&target).join("release/rig_turns"), &["1"])
            {
                peers.rigs.push((name, root.join(target).join("release")));
            } else {
                peers.missing.push(format!("{name}: it does not build or run here"));
            }
        }
        peers.agentplane = peers.durable(quick, AGENTPLANE, "bench", "agentplane");
        peers.salvor = peers.durable(quick, SALVOR, "bench/salvor", "salvor");
        match python(root, quick) {
            Ok(python) => peers.python = Some(python),
            Err(why) => {
                peers.missing.push(format!("pydantic-ai, LangGraph and activegraph: {why}"))
            }
        }
        Ok(peers)
    }

    /// Builds a peer in Rust that keeps what it did, or notes that it is missing. Returns where it is.
    fn durable(
        &mut self,
        quick: bool,
        name: &str,
        workspace: &str,
        program: &str,
    ) -> Option<PathBuf> {
        let target = format!("target/bench-{program}");
        let folder = self.root.join(&target).join("release");
        let log = folder.join(format!("{program}_log"));
        if quick && !log.exists() {
            self.missing.push(format!("{name}: not built yet, and not for a glance"));
        } else if build(&self.root, workspace, &target, &format!("contestant-{program}"), &[])
            && contends(&log, &["append", "1"])
        {
            return Some(folder);
        } else {
            self.missing.push(format!("{name}: it does not build or run here"));
        }
        None
    }

    /// Returns a program of Backstop's.
    pub(crate) fn ours(&self, name: &str) -> PathBuf {
        self.ours.join(name)
    }

    /// Returns which of rig's versions do not take part, and why.
    pub(crate) fn missing_rigs(&self) -> Vec<String> {
        self.missing_of(&["rig-core"])
    }

    /// Returns who of these does not take part, and why.
    pub(crate) fn missing_of(&self, names: &[&str]) -> Vec<String> {
        let is_one = |peer: &&String| names.iter().any(|name| peer.contains(name));
        self.missing.iter().filter(is_one).cloned().collect()
    }

    /// Returns Python and a script.
    pub(crate) fn script(&self, name: &str) -> Option<(&Path, String)> {
        let script = self.root.join("bench/python").join(name);
        self.python.as_deref().map(|python| (python, script.display().to_string()))
    }
}

/// Builds a contestant. rig's newest version asks for a newer Rust than it needs.
fn build(root: &Path, workspace: &str, target: &str, package: &str, more: &[&str]) -> bool {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--quiet", "--ignore-rust-version"]);
    cargo.args(["--package", package, "--target-dir"]).arg(root.join(target)).args(more);
    eprintln!("building: {package} {}", more.join(" "));
    cargo.current_dir(root.join(workspace)).status().is_ok_and(|status| status.success())
}

/// Does a contestant get ready, and end with its input?
fn contends(program: &Path, arguments: &[&str]) -> bool {
    let mut program = Command::new(program);
    program.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    program.status().is_ok_and(|status| status.success())
}

/// Makes a virtual environment with the peers in it; returns its Python.
fn python(root: &Path, quick: bool) -> Result<PathBuf, String> {
    let folder = root.join("target/bench-python");
    let python = folder.join("bin/python");
    let installed = folder.join("installed");
    let run = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let wanted = root.join("bench/python/requirements.txt");
    let versions = std::fs::read_to_string(&wanted).map_err(|error| error.to_string())?;
    let works = || run(&python, &["-c", "import activegraph, langgraph, pydantic_ai"]);
    if std::fs::read_to_string(&installed).is_ok_and(|those| those == versions) && works() {
        return Ok(python);
    }
    if quick {
        return Err("not installed yet, and not for a glance".to_owned());
    }
    eprintln!("installing: Python's peers");
    if !run(Path::new("python3"), &["-m", "venv", &folder.display().to_string()]) {
        return Err("there is no Python with venv".to_owned());
    }
    let wanted = wanted.display().to_string();
    if !run(&python, &["-m", "pip", "install", "--quiet", "-r", &wanted]) {
        return Err("their packages cannot be installed here".to_owned());
    }
    std::fs::write(&installed, versions).map_err(|error| error.to_string())?;
    Ok(python)
}
