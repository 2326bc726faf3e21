//! The output in the README and the pages is the output of the command.

use std::path::PathBuf;

use regex::Regex;

use crate::bench::{Bench, repository};

/// A text for the derivation of a key that looks like a command.
const NO_COMMAND: &str = "backstop log key";

fn pages() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(repository().join("docs")).unwrap();
    let docs = docs.map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.chain([repository().join("README.md")]).collect()
}

/// Returns the commands of a page: each line of a shell, and each in a text.
fn commands(page: &str) -> Vec<String> {
    let shell = Regex::new(r"(?s)```sh\n(.*?)```").unwrap();
    let lines = shell.captures_iter(page).flat_map(|block| block.extract::<1>().1[0].lines());
    let inline = Regex::new(r"`((?:backstop|cargo run (?:-q )?--) [^`]+)`").unwrap();
    let spans = inline.captures_iter(page).map(|span| span.extract::<1>().1[0]);
    let begin = Regex::new(r"^(?:backstop|cargo run (?:-q )?--) (.*)$").unwrap();
    let ours = lines.chain(spans).filter(|command| *command != NO_COMMAND);
    let ours = ours.filter_map(|command| begin.captures(command).map(|it| it.extract::<1>().1[0]));
    ours.map(ToOwned::to_owned).collect()
}

/// Returns the arguments for a command of a page: the first of several choices, and a value for each name.
fn typed(command: &str) -> Vec<String> {
    let command = command.split("  #").next().unwrap().split(" > ").next().unwrap();
    let word = |word: &str| {
        let word = word.trim_matches(['[', ']', '…']).split('|').next().unwrap().to_owned();
        match word.as_str() {
            "COMMAND" => "runs".to_owned(),
            "JSON" => "{}".to_owned(),
            "SEQ" | "N" => "1".to_owned(),
            "SHELL" => "bash".to_owned(),
            _ => word,
        }
    };
    command.split_whitespace().map(word).filter(|word| !word.is_empty()).collect()
}

/// With `--help` at its end, a command line is parsed and nothing is done.
#[test]
fn commands_of_the_pages_are_commands() {
    let bench = Bench::new();
    let mut count = 0;
    for path in pages() {
        let page = std::fs::read_to_string(&path).unwrap();
        for command in commands(&page) {
            let mut words = typed(&command);
            words.push("--help".to_owned());
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let ran = bench.run(&words);
            assert_eq!(ran.code, 0, "{}: `{command}`: {}", path.display(), ran.err);
            count += 1;
        }
    }
    assert!(count > 50, "only {count} commands are on the pages");
}

/// The beginning of an agent file for a part of one on a page.
const REST_OF_FILE: &str = "[agent]\ninput = \"x\"\n[model]\nprovider = \"openai\"\nmodel = \"m\"\n\
    base_url = \"http://127.0.0.1:9\"\n[model.price]\ninput_per_mtok = 1.0\noutput_per_mtok = 1.0\n";

/// Grants for a part that has none.
const GRANTS: &str = "[agent.policy]\ngrant = [\"process:spawn\", \"network:outbound\", \"fs:read:./**\", \
    \"fs:write:./**\"]\n";

/// Spec: C5. Agent files, scripts and scenarios on the pages are valid; a part of an agent file is completed first.
#[test]
fn files_of_the_pages_are_valid() {
    let blocks = Regex::new(r"(?s)```toml\n(.*?)```").unwrap();
    let mut bench = Bench::new();
    for name in ["AZURE_OPENAI_API_KEY", "HOOK_KEY", "HOOK_TOKEN", "ISSUES_TOKEN"] {
        bench = bench.with(name, "canary-0123456789");
    }
    for folder in ["data", "out", "node_modules"] {
        std::fs::create_dir(bench.path().join(folder)).unwrap();
    }
    bench.write("script.toml", "[[model]]\ntext = \"x\"\n");
    for (name, text) in [("notify.sh", "exit 0\n"), ("stock.sh", "exit 0\n")] {
        bench.write(name, text);
    }
    let mut count = 0;
    for path in pages() {
        let page = std::fs::read_to_string(&path).unwrap();
        for block in blocks.captures_iter(&page).map(|block| block.extract::<1>().1[0]) {
            let begins = |table: &str| block.lines().any(|line| line.starts_with(table));
            // A manifest of cargo, the file with every key, which the tests of its format read, and a part of a
            // scenario.
            let is_part = begins("[[operator]]") && !begins("[expect]");
            if begins("[dependencies]")
                || begins("[dev-dependencies]")
                || block.contains("= \"…\"")
                || is_part
            {
                continue;
            }
            let ran = if begins("[expect]") {
                bench.write("scenario.toml", block);
                bench.run(&["rehearse", "scenario.toml"])
            } else if begins("[[model]]") {
                bench.write("said.toml", block);
                bench.write(
                    "agent.toml",
                    "[model]\nprovider = \"script\"\nscript = \"said.toml\"\n",
                );
                bench.run(&["check", "agent.toml"])
            } else {
                let rest = if begins("[model]") { "" } else { REST_OF_FILE };
                let grants = if begins("[agent.policy]") { "" } else { GRANTS };
                bench.write("agent.toml", &format!("{rest}{grants}{block}"));
                bench.run(&["check", "agent.toml"])
            };
            assert_eq!(ran.code, 0, "{}: {block}{}{}", path.display(), ran.out, ran.err);
            count += 1;
        }
    }
    assert!(count > 15, "only {count} files are on the pages");
}

/// Replaces the parts that differ between runs.
fn same(line: &str) -> String {
    let ids = Regex::new(r"(run_|err_)[0-9a-f_-]{10,}").unwrap();
    let times = Regex::new(r" in [0-9.]+m?s").unwrap();
    times.replace_all(&ids.replace_all(line, "$1…"), " in …").into_owned()
}

/// Spec: C1
#[test]
fn the_first_run_is_as_printed() {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, rest) = readme.split_once("```text\n").unwrap();
    let printed = rest.split_once("```").unwrap().0;
    // Under cargo, the commands are printed as those of cargo.
    let bench = Bench::new().with("CARGO_MANIFEST_DIR", "x");
    bench.triage();
    let ran = bench.run(&["run", "triage/agent.toml"]).ok();
    let (out, err) = (same(&ran.out), same(&ran.err));
    let mut lines = [out.lines(), err.lines()];
    for line in printed.lines().map(same).filter(|line| line != "…") {
        let fits = |is: &str| match line.strip_suffix('…') {
            Some(begin) => is.starts_with(begin),
            None => is == line,
        };
        // The line comes after the earlier ones, in one stream or the other.
        let found = lines.iter_mut().any(|lines| match lines.clone().any(fits) {
            true => lines.any(fits),
            false => false,
        });
        assert!(found, "`{line}` is not printed: {out}{err}");
    }
}
