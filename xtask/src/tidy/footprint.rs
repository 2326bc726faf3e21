//! Checks the limits of crates that promise to stay small.

use std::collections::BTreeSet;

use crate::tidy::finding::{Finding, line_of_key};
use crate::tidy::workspace::{Graph, Member};

/// Checks `max_crates` of each member against the crates in its dependency graph.
///
/// The graph has the features that the whole workspace enables, so the count can be too high, never too low.
pub(crate) fn check(members: &[Member], graph: &Graph) -> Vec<Finding> {
    members.iter().filter_map(|member| check_member(member, graph)).collect()
}

fn check_member(member: &Member, graph: &Graph) -> Option<Finding> {
    let max = member.stated.as_ref().ok()?.max_crates?;
    let pulled_in = reachable(&member.id, graph);
    if pulled_in.len() <= max {
        return None;
    }
    let names: Vec<_> =
        pulled_in.iter().filter_map(|id| graph.get(*id)).map(|node| node.name.as_str()).collect();
    let line = line_of_key(&member.manifest_text, "max_crates");
    let what = format!("pulls in {} crates of at most {max}: {}", names.len(), names.join(", "));
    Some(Finding::error(&member.manifest_path(), line, what))
}

fn reachable<'a>(root: &'a str, graph: &'a Graph) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            open.extend(graph.get(id).into_iter().flat_map(|node| &node.deps).map(String::as_str));
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::workspace::{Node, Stated};

    fn said(max_crates: Option<usize>) -> Vec<String> {
        let node = |name: &str, deps: &[&str]| {
            let deps = deps.iter().map(|&dep| dep.to_owned()).collect();
            (name.to_owned(), Node { name: name.to_owned(), deps })
        };
        // A diamond below `a`, and `e`, which `a` does not use.
        let graph = Graph::from([
            node("a", &["b", "c"]),
            node("b", &["d"]),
            node("c", &["d"]),
            node("d", &[]),
            node("e", &["a"]),
        ]);
        let member = Member {
            id: "a".to_owned(),
            dir: "crates/a".to_owned(),
            manifest_text: "[package.metadata.backstop]\ntier = 0\nmax_crates = 3\n".to_owned(),
            stated: Ok(Stated { max_crates, ..Stated::default() }),
            ..Member::default()
        };
        check(&[member], &graph).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn counts_each_crate_once_and_itself() {
        assert_eq!(said(None), [""; 0]);
        assert_eq!(said(Some(4)), [""; 0]);
        assert_eq!(
            said(Some(3)),
            ["crates/a/Cargo.toml:3: pulls in 4 crates of at most 3: a, b, c, d"]
        );
    }
}
