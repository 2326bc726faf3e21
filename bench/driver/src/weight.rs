//! What has to be built.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use backstop_testkit::measure::{Goal, Spread};

use crate::Effort;
use crate::peers::Peers;
use crate::table::{Line, Table};

pub(crate) fn contest(peers: &Peers, effort: Effort) -> Result<Table, String> {
    let bench = peers.root.join("bench");
    let layer0 = crates(&peers.root, &["--package", "backstop-layer0"])?;
    let hello = crates(&bench, &["--package", "contestant-hello"])?;
    let mut lines = Vec::new();
    let mut add = |what: String, over: f64, under: f64, goal| {
        lines.push(Line::new(what, Spread::of([over / under]), goal));
    };
    // Against the newest rig.
    let at_most = |name: &str, most| name.ends_with("46").then_some(Goal::AtMost(most));
    for (name, folder) in &peers.rigs {
        let feature = if name.ends_with("46") { "v0_46" } else { "v0_44" };
        let package = ["--package", "contestant-rig", "--features", feature];
        let rig = crates(&bench, &package)?;
        add(format!("crates of `layer0` alone, to {name}'s hello agent"), layer0, rig, None);
        let what = format!("crates of Backstop's hello agent, to {name}'s");
        add(what, hello, rig, at_most(name, 0.9));
        let size = |path: &Path| Ok::<f64, String>(stripped(path)? as f64);
        let (ours, theirs) = (size(&peers.ours("http"))?, size(&folder.join("rig_http"))?);
        add(format!("bytes of the program, stripped, to {name}'s"), ours, theirs, None);
    }
    if let (false, Some((name, _))) = (effort.quick, peers.rigs.first()) {
        let feature = if name.ends_with("46") { "v0_46" } else { "v0_44" };
        let rig = clean_build(
            &bench,
            &["--package", "contestant-rig", "--features", feature, "--bin", "rig_http"],
        )?;
        let layer0 = clean_build(&peers.root, &["--package", "backstop-layer0"])?;
        let hello = clean_build(&bench, &["--package", "contestant-hello"])?;
        add(format!("clean build of `layer0` alone, to {name}'s hello agent"), layer0, rig, None);
        let what = format!("clean build of Backstop's hello agent, to {name}'s");
        add(what, hello, rig, at_most(name, 0.8));
    }
    Ok(Table {
        title: "Weight",
        about:
            "Crates that are compiled, the size of the program, and the time of a clean release \
                build, of which there is one each. A hello agent asks an OpenAI-compatible endpoint and \
                has a tool. Backstop's is built on the facade with its default features; rig's on its \
                core and its agent."
                .to_owned(),
        lines,
        left_out: peers.missing_rigs(),
    })
}

/// Counts the crates a package is built of.
fn crates(folder: &Path, package: &[&str]) -> Result<f64, String> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(folder).args(["tree", "--locked", "--edges", "normal,build"]);
    cargo.args(["--prefix", "none", "--no-dedupe", "--format", "{p}"]).args(package);
    let output = cargo.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().map(|line| line.split(" (").next().unwrap_or_default());
    let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    Ok(names.len() as f64)
}

/// Returns how long a program is without its symbols.
fn stripped(program: &Path) -> Result<u64, String> {
    let copy = std::env::temp_dir().join(format!("stripped-{}", std::process::id()));
    std::fs::copy(program, &copy).map_err(|error| format!("{program:?}: {error}"))?;
    let _ = Command::new("strip").arg(&copy).status();
    let size = std::fs::metadata(&copy).map_err(|error| error.to_string())?.len();
    std::fs::remove_file(&copy).map_err(|error| error.to_string())?;
    Ok(size)
}

/// Returns the seconds of a build from nothing.
fn clean_build(folder: &Path, package: &[&str]) -> Result<f64, String> {
    let target = std::env::temp_dir().join(format!("clean-build-{}", std::process::id()));
    let mut cargo = Command::new("cargo");
    cargo.current_dir(folder).args(["build", "--release", "--locked", "--quiet"]);
    cargo.arg("--ignore-rust-version").arg("--target-dir").arg(&target).args(package);
    let began = Instant::now();
    let built = cargo.status().is_ok_and(|status| status.success());
    let took = began.elapsed().as_secs_f64();
    let _ = std::fs::remove_dir_all(&target);
    if built { Ok(took) } else { Err(format!("{package:?} does not build")) }
}
