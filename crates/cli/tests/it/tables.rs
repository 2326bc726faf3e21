//! Printed tables with large, wide and hostile texts.

use crate::bench::Bench;

/// Two cells for a character, emoji of several characters, combining marks, and what turns or blanks a line.
const NAME: &str = "会話 👩‍👩‍👧 e\u{301} 한국어";
const HOSTILE: &str = "a\u{1b}[31mb\u{202e}c\u{7}d\te";

/// Makes a store with a run that failed, stored errors and results, and one that waits, all with such texts.
fn bench() -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let large = "1".repeat(40);
    let long = "長".repeat(300_000);
    bench.write("large.txt", &long);
    bench.agent(
        &format!(
            "[[model]]\ntool_calls = [{{ id = \"c1\", name = \"bad\", arguments = '{{\"n\":{large},\"t\":\"{NAME}\"}}' }}, \
             {{ id = \"c2\", name = \"large\" }}]\n[[model]]\n\
             tool_calls = [{{ id = \"c3\", name = \"asks\", arguments = '{{\"n\":{large}}}' }}]\n"
        ),
        "[agent.policy]\ngrant = [\"process:spawn\"]\n\
         [[tools]]\nkind = \"command\"\nname = \"bad\"\ndescription = \"d\"\nschema = { type = \"object\" }\n\
         command = [\"sh\", \"-c\", \"printf 'Fehler: 会話 \\\\033[31m 😀\\\\n' >&2; cat large.txt >&2; exit 3\"]\n\
         [[tools]]\nkind = \"command\"\nname = \"large\"\ndescription = \"d\"\nschema = { type = \"object\" }\n\
         command = [\"cat\", \"large.txt\"]\n\
         [[tools]]\nkind = \"command\"\nname = \"asks\"\ndescription = \"d\"\nschema = { type = \"object\" }\n\
         command = [\"true\"]\napproval = true\n",
    );
    let label = format!("topic={NAME}");
    let ran = bench.run(&["run", "agent.toml", NAME, "--session", "会話-😀", "--label", &label]);
    ran.fails(4, "waiting for approval");
    bench
        .run(&["run", "agent.toml", "--input", "@large.txt", "--session", "s-2"])
        .fails(4, "waiting");
    let json = serde_json::to_string(HOSTILE).unwrap();
    for (key, value) in [
        ("会話/👩‍👩‍👧", format!("\"{NAME}\"")),
        ("e\u{301}", large),
        ("k", json),
        ("l", format!("\"{}\"", "x".repeat(120_000))),
    ] {
        bench.run(&["state", "set", key, &value]).ok();
    }
    bench
}

/// Spec: C2, E11. Nothing panics, and no text of others acts on the terminal.
#[test]
fn tables_print_hostile_texts() {
    let bench = bench();
    for args in [
        &["runs"][..],
        &["runs", "--search", "会話"],
        &["runs", "--stuck"],
        &["sessions", "list"],
        &["costs"],
        &["costs", "--by", "agent"],
        &["costs", "--by", "label:topic"],
        &["costs", "--by", "model"],
        &["state", "list"],
        &["approvals"],
        &["errors", "list"],
        &["errors", "stats"],
        &["errors", "stats", "--by", "tool"],
        &["results", "list"],
        &["behaviors", "list"],
        &["behaviors", "failures"],
        &["trace", "last"],
        &["verify"],
        &["tools", "agent.toml"],
        &["codes"],
    ] {
        let ran = bench.run(args);
        assert!(
            matches!(ran.code, 0 | 1) && !ran.err.contains("panicked"),
            "{args:?}: {}",
            ran.err
        );
        for sign in ['\u{1b}', '\u{7}', '\u{202e}', '\t'] {
            assert!(!ran.out.contains(sign), "{args:?}: {sign:?} in {}", ran.out);
        }
    }
}

/// Spec: C1, D10. As in JSON, so that two names that differ do not look alike.
#[test]
fn cells_show_what_would_steer_a_terminal() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.write("script.toml", "[[model]]\ntext = \"ok\"\n");
    bench.write(
        "agent.toml",
        "[agent]\nname = \"a\\u001b[31m\\tb\\n\\u202ec\"\n[model]\nprovider = \"script\"\nscript = \"script.toml\"\n",
    );
    bench.run(&["run", "agent.toml", "x"]).ok();
    let listed = bench.run(&["runs"]).ok().out;
    assert!(listed.contains("  a\\u001b[31m\\tb\\n\\u202ec\n"), "{listed}");
}

/// Spec: C2
#[test]
fn columns_align_behind_wide_texts() {
    let bench = bench();
    for (args, next) in [
        (&["state", "list", "--limit", "3"][..], "VERSION"),
        (&["sessions", "list"], "RUNS"),
        (&["costs", "--by", "label:topic"], "RUNS"),
    ] {
        let out = bench.run(args).ok().out;
        let width = |text: &str| unicode_width::UnicodeWidthStr::width(text);
        let lines: Vec<&str> = out.lines().collect();
        let column = width(&lines[0][..lines[0].find(next).unwrap()]);
        for line in &lines[1..] {
            // The column before ends where this one begins.
            let begins = line.char_indices().any(|(at, c)| {
                width(&line[..at]) == column && c != ' ' && line[..at].ends_with("  ")
            });
            assert!(begins, "{args:?}: {line}\n{out}");
        }
    }
}
