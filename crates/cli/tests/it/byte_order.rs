//! Byte order marks, which some editors and shells put before a text.

use std::io::Write;
use std::process::Stdio;

use crate::bench::{Bench, Ran};

const MARK: &str = "\u{feff}";

/// Spec: C1
#[test]
fn byte_order_mark_reaches_no_model() {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"ok\"\n", "");
    for file in ["agent.toml", "script.toml"] {
        let text = std::fs::read_to_string(bench.path().join(file)).unwrap();
        bench.write(file, &format!("{MARK}{text}"));
    }
    bench.write("asked.txt", &format!("{MARK}What now?"));
    bench.run(&["run", "agent.toml", "--input", "@asked.txt"]).ok();
    let mut child = bench.command(&["run", "agent.toml", "--input", "-"]);
    let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    write!(child.stdin.take().unwrap(), "{MARK}What now?").unwrap();
    Ran::of(child.wait_with_output().unwrap()).ok();
    for run in bench.run(&["runs", "--json"]).ok().json() {
        let trace = bench.run(&["trace", run["run"].as_str().unwrap(), "--json"]).ok();
        assert_eq!(trace.json()[0]["data"]["input"], "What now?", "{}", trace.out);
        assert!(!trace.out.contains(MARK) && !trace.out.contains("\\ufeff"), "{}", trace.out);
    }
}
