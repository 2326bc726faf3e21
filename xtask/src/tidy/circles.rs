//! Circular dependencies between files of a crate: none of more than two files, and few of two.
//!
//! A file needs another if its code names an item that the other defines, regardless of re-exports between them.
//! Declaring a child module, re-exporting its items, and code for tests do not count.

mod modules;
mod names;

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::finding::Finding;
use crate::tidy::workspace::SourceFile;
use modules::Modules;

/// Largest number of circles of two files in the workspace.
const MAX_PAIRS: usize = 6;

/// Files with a known circle, and its reason.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// The files that each file needs, with the names that it takes from there.
type Needs<'a> = BTreeMap<&'a str, BTreeMap<&'a str, BTreeSet<String>>>;

/// Checks the files of every crate.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    check_without(EXCEPTIONS, files)
}

fn check_without(exceptions: &[(&str, &str)], files: &[SourceFile]) -> Vec<Finding> {
    let (mut findings, mut pairs) = (Vec::new(), Vec::new());
    let by_path = files.iter().map(|file| (file.path.as_str(), file)).collect::<BTreeMap<_, _>>();
    let mut excused = BTreeSet::new();
    for root in files.iter().filter(|file| is_crate_root(&file.path)) {
        let needs = needs(&Modules::read(root, &by_path));
        for circle in circles(&needs) {
            let known = exceptions.iter().filter(|(path, _)| circle.contains(path));
            let known = known.map(|(path, _)| *path).collect::<Vec<_>>();
            if !known.is_empty() {
                excused.extend(known);
            } else if circle.len() == 2 {
                pairs.push((circle[0], described(&circle, &needs)));
            } else {
                findings.push(Finding::error(circle[0], 1, described(&circle, &needs)));
            }
        }
    }
    let report = if pairs.len() > MAX_PAIRS { Finding::error } else { Finding::warning };
    for (path, what) in &pairs {
        let what = format!("{what}; {} of at most {MAX_PAIRS} circles of two", pairs.len());
        findings.push(report(path, 1, what));
    }
    for (path, reason) in exceptions.iter().filter(|(path, _)| !excused.contains(path)) {
        findings.push(Finding::error(path, 1, format!("in no circle, but excepted: {reason}")));
    }
    findings
}

fn is_crate_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")
}

/// Finds the files that each file needs.
fn needs<'a>(modules: &Modules<'a>) -> Needs<'a> {
    let mut needs = Needs::new();
    for (from, path) in modules.mentions() {
        let Some(found) = modules.find(from, path) else { continue };
        let (from, to) = (modules.file(from), modules.file(found.module));
        if from != to {
            needs.entry(from).or_default().entry(to).or_default().insert(found.name);
        }
    }
    needs
}

/// Groups the files that reach each other; a group has at least two.
fn circles<'a>(needs: &Needs<'a>) -> Vec<Vec<&'a str>> {
    let reach =
        needs.keys().map(|file| (*file, reachable(file, needs))).collect::<BTreeMap<_, _>>();
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for (file, reached) in &reach {
        let back = |other: &&&str| reach.get(**other).is_some_and(|back| back.contains(file));
        let circle = reached.iter().filter(back).copied().collect::<Vec<_>>();
        if !circle.is_empty() && seen.insert(circle.clone()) {
            circles.push(circle);
        }
    }
    circles
}

fn reachable<'a>(from: &str, needs: &Needs<'a>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in needs.get(file).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(*next) {
                open.push(*next);
            }
        }
    }
    seen
}

/// Returns a description of a circle, with the names that connect its files.
fn described(circle: &[&str], needs: &Needs<'_>) -> String {
    let mut ties = Vec::new();
    for from in circle {
        for (to, names) in &needs[from] {
            if circle.contains(to) {
                let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                ties.push(format!("{} takes {names} from {}", short(from), short(to)));
            }
        }
    }
    format!("{} files need each other: {}", circle.len(), ties.join("; "))
}

/// Returns the part of a path after its crate's `src/`.
fn short(path: &str) -> &str {
    path.split_once("/src/").map_or(path, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Vec<SourceFile> {
        let file = |(path, text): &(&str, &str)| {
            SourceFile::new(format!("crates/a/src/{path}"), (*text).to_owned()).unwrap()
        };
        files.iter().map(file).collect()
    }

    fn said(files: &[(&str, &str)]) -> Vec<String> {
        check_without(&[], &read(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn three_files_in_a_circle_are_an_error() {
        let wanted = "crates/a/src/b.rs:1: 3 files need each other: b.rs takes C from c.rs; \
             c.rs takes d from c/d.rs; c/d.rs takes B from b.rs";
        // `C` goes through the root's re-export, `d` through an imported module, `B` is in a macro.
        let files = [
            ("lib.rs", "mod b;\nmod c;\npub use b::B;\npub use c::C;\n"),
            ("b.rs", "pub struct B(crate::C);\n"),
            ("c.rs", "mod d;\npub struct C;\nfn c() { d::d() }\n"),
            ("c/d.rs", "use super::super::b;\npub fn d() { vec![b::B] }\n"),
        ];
        assert_eq!(said(&files), [wanted]);
    }

    #[test]
    fn two_files_in_a_circle_are_listed() {
        let files = [
            ("lib.rs", "mod b;\nmod c;\n"),
            ("b.rs", "use crate::c::*;\npub struct B;\nfn b(_: C) {}\n"),
            ("c.rs", "pub struct C;\nimpl From<super::b::B> for C {}\n"),
        ];
        assert_eq!(
            said(&files),
            ["crates/a/src/b.rs:1: warning: 2 files need each other: b.rs takes C from c.rs; \
              c.rs takes B from b.rs; 1 of at most 6 circles of two"]
        );
    }

    #[test]
    fn seven_circles_of_two_are_an_error() {
        let mut files = vec![("lib.rs".to_owned(), String::new())];
        for pair in 0..7 {
            files[0].1 += &format!("mod a{pair};\nmod b{pair};\n");
            files.push((format!("a{pair}.rs"), format!("pub struct A(crate::b{pair}::B);\n")));
            files.push((format!("b{pair}.rs"), format!("pub struct B(crate::a{pair}::A);\n")));
        }
        let files = files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        let said = said(&files.collect::<Vec<_>>());
        assert_eq!(said.len(), 7);
        assert!(said.iter().all(|line| line.ends_with("; 7 of at most 6 circles of two")));
        assert!(said.iter().all(|line| !line.contains("warning")));
    }

    #[test]
    fn declaring_reexporting_and_testing_do_not_count() {
        let files = [
            ("lib.rs", "mod b;\nmod c;\npub use b::{B, new};\npub struct Root;\n"),
            // A parent declares and re-exports; `error` is a module here and a variable in `f`.
            (
                "b.rs",
                "mod e;\nmod error;\npub use e::E;\npub struct B;\nfn f(error: u8) { error; }\n",
            ),
            ("b/e.rs", "use super::B;\npub struct E(B);\n"),
            ("b/error.rs", "use super::B as Parent;\npub struct Error(Parent, crate::Root);\n"),
            (
                "c.rs",
                "use crate::b::E;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod more { use crate::B; }\n",
            ),
            ("c/tests.rs", "use crate::c::E;\n"),
        ];
        assert_eq!(said(&files), [""; 0]);
    }

    #[test]
    fn an_exception_holds_only_for_a_circle() {
        let pair = read(&[
            ("lib.rs", "mod b;\npub struct A(b::B);\n"),
            ("b.rs", "pub struct B(Option<crate::A>);\n"),
        ]);
        let because = [("crates/a/src/b.rs", "because")];
        assert!(check_without(&because, &pair).is_empty());
        assert_eq!(
            check_without(&because, &pair[..1])[0].to_string(),
            "crates/a/src/b.rs:1: in no circle, but excepted: because"
        );
    }
}
