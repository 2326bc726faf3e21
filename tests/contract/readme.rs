//! The README against the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn readme_links_every_guide() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let guides = names("docs").into_iter().filter(|name| name.ends_with(".md"));
    let unlinked: Vec<_> = guides
        .filter(|name| name != "SUMMARY.md" && !readme.contains(&format!("(docs/{name})")))
        .collect();
    assert!(unlinked.is_empty(), "{unlinked:?}");
}

#[test]
fn readme_names_every_package() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let table = readme.split("\n## Crates").nth(1).unwrap();
    // `-x` behind `backstop-provider-http` stands for a provider.
    let unnamed: Vec<_> = names("crates")
        .into_iter()
        .map(|name| if name == "backstop" { name } else { format!("backstop-{name}") })
        .filter(|name| {
            let short = name.strip_prefix("backstop-provider").map(|rest| format!("`{rest}`"));
            !table.contains(&format!("`{name}`")) && !short.is_some_and(|it| table.contains(&it))
        })
        .collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
}
