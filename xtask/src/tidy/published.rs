//! Checks that each published package has all that its page on the registry shows, and that it can be published:
//! a dependency for tests alone names no version, because packages of the workspace test each other in circles.

use crate::tidy::finding::Finding;
use crate::tidy::workspace::Member;

/// Files next to the manifest.
const FILES: &[&str] = &["README.md", "LICENSE-APACHE", "LICENSE-MIT"];
/// Keys of `[package]`.
const KEYS: &[&str] =
    &["description", "license", "repository", "readme", "keywords", "categories", "rust-version"];
/// The registry refuses more keywords.
const MAX_KEYWORDS: usize = 5;

/// Checks the manifests and files of the published packages. `exists` tells whether a path of the workspace does.
pub(crate) fn check(members: &[Member], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let published = members.iter().filter(|member| is_published(&member.manifest));
    published
        .flat_map(|member| {
            let error = |what: String| Finding::error(&member.manifest_path(), 1, what);
            let files = FILES.iter().filter(|file| !exists(&format!("{}/{file}", member.dir)));
            let files = files.map(|file| error(format!("the package has no `{file}`")));
            let mistakes = find_mistakes(member).into_iter().map(error);
            files.chain(mistakes).collect::<Vec<_>>()
        })
        .collect()
}

fn is_published(manifest: &toml::Table) -> bool {
    let publish = manifest.get("package").and_then(|package| package.get("publish"));
    publish.and_then(toml::Value::as_bool) != Some(false)
}

fn find_mistakes(member: &Member) -> Vec<String> {
    let package = member.manifest.get("package");
    let key = |key: &str| package.and_then(|package| package.get(key));
    let mut mistakes: Vec<String> = KEYS
        .iter()
        .filter(|name| key(name).is_none())
        .map(|name| format!("`[package]` has no `{name}`"))
        .collect();
    if key("keywords").and_then(toml::Value::as_array).is_some_and(|all| all.len() > MAX_KEYWORDS) {
        mistakes.push(format!("more than {MAX_KEYWORDS} keywords"));
    }
    let docs =
        key("metadata").and_then(|metadata| metadata.get("docs")?.get("rs")?.get("all-features"));
    if docs.and_then(toml::Value::as_bool) != Some(true) {
        mistakes.push("`[package.metadata.docs.rs]` does not say `all-features = true`".to_owned());
    }
    let tests = member.manifest.get("dev-dependencies");
    for dep in member.deps.iter().filter(|dep| dep.dev) {
        let stated = tests.and_then(|tests| tests.get(&dep.key));
        let by_path =
            stated.is_some_and(|it| it.get("path").is_some() && it.get("version").is_none());
        if stated.is_some() && !by_path {
            mistakes
                .push(format!("the dev-dependency `{}` is not stated by `path` alone", dep.key));
        }
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::workspace::Dep;

    const WHOLE: &str = "[package]\ndescription = \"d\"\nlicense.workspace = true\nrepository.workspace = true\n\
        readme = \"README.md\"\nkeywords = [\"k\"]\ncategories = [\"c\"]\nrust-version.workspace = true\n\
        [package.metadata.docs.rs]\nall-features = true\n";

    #[track_caller]
    fn check_one(manifest: &str, missing_file: &str, expected: &[&str]) {
        let dep = Dep { package: "backstop-b".into(), key: "backstop-b".into(), dev: true };
        let member = Member {
            dir: "crates/a".to_owned(),
            manifest: manifest.parse().unwrap(),
            deps: vec![dep],
            ..Member::default()
        };
        let found = check(&[member], |path| path != format!("crates/a/{missing_file}"));
        let found: Vec<String> = found.iter().map(|finding| finding.what.clone()).collect();
        assert_eq!(found, expected, "{manifest}");
    }

    #[test]
    fn published_packages_have_what_the_registry_shows() {
        let by_path = "[dev-dependencies]\nbackstop-b = { path = \"../b\" }\n";
        check_one(&format!("{WHOLE}{by_path}"), "", &[]);
        check_one(WHOLE, "README.md", &["the package has no `README.md`"]);
        check_one(WHOLE, "LICENSE-MIT", &["the package has no `LICENSE-MIT`"]);
        check_one(
            &WHOLE.replace("keywords = [\"k\"]\n", ""),
            "",
            &["`[package]` has no `keywords`"],
        );
        let many = "keywords = [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]";
        check_one(&WHOLE.replace("keywords = [\"k\"]", many), "", &["more than 5 keywords"]);
        check_one(
            &WHOLE.replace("all-features = true", ""),
            "",
            &["`[package.metadata.docs.rs]` does not say `all-features = true`"],
        );
        for stated in
            ["backstop-b.workspace = true", "backstop-b = { path = \"../b\", version = \"1\" }"]
        {
            check_one(
                &format!("{WHOLE}[dev-dependencies]\n{stated}\n"),
                "",
                &["the dev-dependency `backstop-b` is not stated by `path` alone"],
            );
        }
        check_one("[package]\npublish = false\n", "README.md", &[]);
    }
}
