//! Checks of links inside the repository.

use std::collections::BTreeMap;

use crate::tidy::finding::Finding;

/// Checks that each relative link of a page names an existing file or folder, and an existing heading if it has a
/// fragment. `pages` has the texts of all pages by path; `exists` returns whether any other file exists.
pub(crate) fn check(
    pages: &BTreeMap<String, String>,
    exists: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (page, text) in pages {
        for (line, target) in links(text) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.clone() } else { beside(page, file) };
            if !pages.contains_key(&path) && !exists(&path) {
                findings.push(Finding::error(page, line, format!("there is no `{path}`")));
            } else if !heading.is_empty()
                && let Some(text) = pages.get(&path)
                && !headings(text).any(|slug| slug == heading)
            {
                let what = format!("`{path}` has no heading `#{heading}`");
                findings.push(Finding::error(page, line, what));
            }
        }
    }
    findings
}

/// Returns the targets of links into the repository, with their lines. Text between code fences or backticks is no
/// link.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(line, text)| {
        let outside_code = text.split('`').step_by(2);
        outside_code
            .flat_map(|piece| piece.split("](").skip(1))
            .filter_map(|rest| rest.split([')', ' ']).next())
            .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
            .filter(|target| !target.is_empty())
            .map(move |target| (line, target))
    })
}

/// Returns the lines of a page outside of code fences, from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            return None;
        }
        (!is_code).then_some((index + 1, line))
    })
}

/// Returns the fragments of headings: lower case letters, digits, `-` and `_`, blanks as `-`.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        let is_heading = title.len() < line.len() && title.starts_with(' ');
        is_heading.then(|| {
            let kept = title.trim().chars().filter_map(|letter| match letter {
                ' ' => Some('-'),
                '-' | '_' => Some(letter),
                other => other.is_alphanumeric().then(|| other.to_ascii_lowercase()),
            });
            kept.collect()
        })
    })
}

/// Resolves a link of a page against the page's folder.
fn beside(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = "# Read me\n[a](docs/a.md) [b](docs/a.md#the-one) [c](docs/b.md) `[d](no.md)`\n\
            ```text\n[e](no.md)\n```\n[f](#read-me) [g](docs/a.md#none) [h](https://x.org/y) [i](src/)\n";
        let pages = BTreeMap::from([
            ("README.md".to_owned(), page.to_owned()),
            (
                "docs/a.md".to_owned(),
                "## The `one`\n[up](../README.md) [out](../LICENSE)\n".to_owned(),
            ),
        ]);
        let found = check(&pages, |path| path == "src");
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "README.md:2: there is no `docs/b.md`",
                "README.md:6: `docs/a.md` has no heading `#none`",
                "docs/a.md:2: there is no `LICENSE`",
            ]
        );
    }
}
