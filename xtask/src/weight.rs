//! The number of crates that the facade adds to an application, with a limit.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::error::XtaskError;

/// Flags that select features, with the largest number of crates.
const GOALS: [(&[&str], usize); 2] = [(&["--no-default-features"], 110), (&[], 150)];

/// Counts the crates that are compiled into an application, Backstop's own included.
///
/// # Errors
///
/// [`XtaskError::Heavy`] if there are more than the limit; [`XtaskError::Start`] and [`XtaskError::Step`] if cargo
/// cannot list them.
pub(crate) fn check(root: &Path) -> Result<(), XtaskError> {
    for (flags, most) in GOALS {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(root).args(["tree", "--locked", "-p", "backstop", "--edges", "normal"]);
        cargo.args(["--prefix", "none"]).args(flags);
        let start = |source| XtaskError::Start { program: "cargo".to_owned(), source };
        let output = cargo.output().map_err(start)?;
        if !output.status.success() {
            return Err(XtaskError::Step { step: "weight", status: output.status });
        }
        let crates = count(&String::from_utf8_lossy(&output.stdout));
        println!("backstop {}: {crates} crates of at most {most}", flags.join(" "));
        if crates > most {
            return Err(XtaskError::Heavy { crates, most });
        }
    }
    Ok(())
}

/// Counts the packages in a tree.
fn count(tree: &str) -> usize {
    let names = tree.lines().map(|line| line.split(" (").next().unwrap_or_default().trim());
    names.filter(|name| !name.is_empty()).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_counted_once() {
        let tree = "backstop v0.1.0 (/x)\nserde v1.0.0\nsyn v2.0.0 (proc-macro)\nserde v1.0.0 (*)\nsyn v3.0.0\n";
        assert_eq!(count(tree), 4);
    }
}
