//! The page of a run, and its reaction to clicks.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::Bench;

/// Runs the triage example and writes its page to `page.html`.
fn triage() -> (Bench, String) {
    let bench = Bench::new();
    bench.triage();
    bench.run(&["run", "triage/agent.toml"]).ok();
    let run = bench.run(&["runs", "--json"]).ok().json()[0]["run"].as_str().unwrap().to_owned();
    let ran = bench.run(&["trace", &run, "--html", "page.html"]).ok();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", "written: page.html\n"));
    (bench, run)
}

/// Spec: D10
#[test]
fn a_run_is_written_as_one_page() {
    let (bench, run) = triage();
    let page = std::fs::read_to_string(bench.path().join("page.html")).unwrap();
    // The whole error, of which the model read one line.
    for text in [run.as_str(), "numeric fields seen: dur_ms", "tool.execution_failed"] {
        assert!(page.contains(text), "{text}");
    }
    assert_eq!(page.matches("<script").count(), 2);
    assert!(!page.contains("http://") && !page.contains("https://"));

    bench.run(&["trace", &run, "--html", "none/page.html"]).fails(
        2,
        "none/page.html: cannot be written: No such file or directory (os error 2)\n  hint: name a file",
    );
    bench.run(&["trace", &run, "--html", "x.html", "--json"]).fails(2, "cannot be used with");
    bench.run(&["trace", "run_x", "--html", "x.html"]).fails(2, "no run `run_x`");
    assert!(!bench.path().join("x.html").exists());
    let printed = bench.run(&["trace", &run, "--html", "-"]).ok();
    assert_eq!(printed.out.trim_end(), page.trim_end());
}

/// Spec: D10
#[cfg(unix)]
#[test]
fn a_page_takes_no_other_file_along() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let (bench, run) = triage();
    bench.write("mine", "mine");
    bench.write("page.html.new", "mine");
    symlink("mine", bench.path().join("linked.html.new")).unwrap();
    symlink("mine", bench.path().join("link.html")).unwrap();
    let before = bench.files().len();
    for name in ["page.html", "linked.html", "link.html"] {
        bench.run(&["trace", &run, "--html", name]).ok();
        let page = bench.path().join(name);
        assert!(std::fs::read_to_string(&page).unwrap().contains(&run), "{name}");
        let mode = page.symlink_metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{name}");
    }
    for name in ["mine", "page.html.new", "linked.html.new"] {
        assert_eq!(std::fs::read_to_string(bench.path().join(name)).unwrap(), "mine", "{name}");
    }
    assert_eq!(bench.files().len(), before + 1, "{:?}", bench.files());
    bench.run(&["trace", &run, "--html", "triage"]).fails(2, "triage: cannot be written");
    bench.run(&["trace", &run, "--html", "/dev/null"]).ok();
    let printed = bench.run(&["trace", &run, "--html", "/dev/stdout"]).ok();
    assert!(printed.out.contains(&run));
    assert!(Path::new("/dev/stdout").is_symlink());
}

/// Spec: D10. Whatever it is called.
#[cfg(unix)]
#[test]
fn a_page_is_never_written_over_its_store() {
    use std::os::unix::fs::symlink;
    let bench = Bench::new();
    bench.triage();
    std::fs::create_dir(bench.path().join("data")).unwrap();
    let store = ["--store", "sqlite:data/x.db"];
    bench.run(&[&["run", "triage/agent.toml"], &store[..]].concat()).ok();
    let runs = bench.run(&[&["runs", "--json"], &store[..]].concat()).ok().json();
    let run = runs[0]["run"].as_str().unwrap();
    let at = |name: &str| bench.path().join(name);
    std::fs::create_dir(at("data/x.db.runs")).unwrap();
    std::fs::write(at("data/x.db-owner-1"), "").unwrap();
    symlink("data/x.db-owner-1", at("owner.html")).unwrap();
    symlink("data", at("other")).unwrap();
    symlink("data/x.db", at("link.html")).unwrap();
    symlink("data/x.db", at("y.db")).unwrap();
    std::fs::hard_link(at("data/x.db-owner-1"), at("hard.html")).unwrap();
    let absolute = at("data/x.db").display().to_string();
    for (store, page) in [
        ("data/x.db", "data/x.db"),
        ("data/x.db", "data/../data/x.db-wal"),
        ("data/x.db", "other/x.db-shm"),
        ("data/x.db", "other/x.db-journal"),
        ("data/x.db", "data/x.db.runs"),
        ("data/x.db", "other/x.db.runs/00"),
        ("data/x.db", "other/x.db-owner-1"),
        ("data/x.db", "owner.html"),
        ("data/x.db", "link.html"),
        ("data/x.db", "hard.html"),
        ("data/x.db", absolute.as_str()),
        ("y.db", "y.db"),
        ("y.db", "y.db-wal"),
        ("y.db", "data/x.db"),
        ("y.db", "data/x.db-wal"),
    ] {
        let store = format!("sqlite:{store}");
        let ran = bench.run(&["trace", run, "--store", &store, "--html", page]);
        ran.fails(2, "belongs to the store itself");
    }
    bench.run(&[&["trace", run, "--html", "data/x.html"], &store[..]].concat()).ok();
    bench.run(&[&["trace", run], &store[..]].concat()).ok();
}

/// Spec: D10
#[test]
fn click_on_a_failed_call_shows_its_error() {
    let Some(browser) = browser() else { return skipped("no browser") };
    let (bench, _) = triage();
    bench.write("probe.html", "<p id=\"probe\">");
    if !shown(&browser, bench.path(), "probe.html").contains("<p id=\"probe\">") {
        return skipped("the browser cannot open files of the test");
    }
    let whole = "numeric fields seen: dur_ms";
    let before = shown(&browser, bench.path(), "page.html");
    assert!(before.contains(">completed<") && before.contains("1 failure"), "{before}");
    assert!(before.contains("class=\"bar tool failed\""), "{before}");
    assert!(!before.contains(whole), "{before}");

    let after = shown(&browser, bench.path(), "page.html#open-c2");
    let (_, call) = after.split_once("data-detail=\"c2\"").unwrap();
    let (call, _) = call.split_once("</details>").unwrap();
    for text in [whole, "the tool's own code", "exit_2", "the whole error, 5,0"] {
        assert!(call.contains(text), "{text} is not in {call}");
    }
    let event = shown(&browser, bench.path(), "page.html#seq-9");
    assert!(event.contains("id=\"seq-9\" class=\"event failed here\" open"), "{event}");
}

/// Returns the elements that the page's script created: the part before its data.
fn shown(browser: &Path, folder: &Path, page: &str) -> String {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--timeout=30000"])
        .args(["--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("browser").display()))
        .arg(format!("file://{}/{page}", folder.display()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    text.split("<script").next().unwrap_or_default().to_owned()
}

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "google-chrome", "chromium-browser"];
    let mut files =
        names.iter().flat_map(|name| std::env::split_paths(&path).map(move |at| at.join(name)));
    files.find(|file| file.is_file())
}

#[expect(clippy::print_stderr, reason = "who runs the tests should know")]
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}
