//! The server as a program.

use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::path::Path;

use serde_json::Value;

use super::{Reply, Script};

/// Appends a line to the file of a counter, and returns the number of earlier lines.
fn count(folder: &str, what: &str, line: &str) -> usize {
    let path = Path::new(folder).join(what);
    let before = std::fs::read_to_string(&path).unwrap_or_default().lines().count();
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    writeln!(file, "{line}").unwrap();
    before
}

/// A notification without content.
const FLOOD: &str = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n";

/// Serves until its input ends.
pub(crate) fn serve() {
    let script = std::fs::read_to_string(std::env::var("SCRIPT").unwrap()).unwrap();
    let script: Script = serde_json::from_str(&script).unwrap();
    count(&script.folder, "starts", &std::process::id().to_string());
    eprintln!("the key is hunter2-hunter2");
    let variables: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
    std::fs::write(Path::new(&script.folder).join("variables"), variables.join("\n")).unwrap();
    let mut stdout = std::io::stdout().lock();
    let mut write = |bytes: &[u8]| {
        let pieces = if script.is_cut && bytes.len() < 64 * 1024 { 1 } else { bytes.len().max(1) };
        for piece in bytes.chunks(pieces) {
            stdout.write_all(piece).unwrap();
            stdout.flush().unwrap();
        }
    };
    let mut stdin = std::io::stdin().lock().lines();
    while let Some(line) = stdin.next() {
        let line = line.unwrap();
        count(&script.folder, "written", &line);
        let request: Value = serde_json::from_str(&line).unwrap();
        let method = request["method"].as_str().unwrap_or_default().to_owned();
        let before = match method.as_str() {
            "tools/call" => count(&script.folder, "calls", &request.to_string()),
            _ => std::fs::read_to_string(Path::new(&script.folder).join("calls"))
                .map_or(0, |calls| calls.lines().count()),
        };
        if request.get("id").is_none() || method.is_empty() {
            count(&script.folder, "said", &request.to_string());
            continue;
        }
        if method == "tools/call"
            && before >= script.asks_after
            && let Some(asked) = &script.asks
        {
            let mut asked = asked.clone();
            if let Some(token) = asked.pointer_mut("/params/progressToken") {
                *token = request["params"]["_meta"]["progressToken"].clone();
            }
            write(format!("{asked}\n").as_bytes());
            if asked.get("id").is_some() {
                let answer = stdin.next().unwrap().unwrap();
                count(&script.folder, "said", &answer);
            }
        }
        match script.reply(&request, before) {
            Reply::Messages(messages) => {
                for message in messages {
                    match message.as_str() {
                        Some(noise) => write(format!("{noise}\n").as_bytes()),
                        None => write(format!("{message}\n").as_bytes()),
                    }
                }
            }
            Reply::Bytes(bytes) => write(&[&bytes, b"\n".as_slice()].concat()),
            Reply::Die(messages) => {
                for message in messages {
                    write(format!("{message}\n").as_bytes());
                }
                std::process::exit(3);
            }
            Reply::DieWithin => {
                write(b"{\"jsonrpc\":\"2.0\",\"id\":");
                std::process::exit(3);
            }
            Reply::Flood => loop {
                // Until the client closes the pipe, and afterwards.
                let _ = stdout.write_all(FLOOD.as_bytes());
            },
            Reply::HangForGood => loop {
                std::thread::park();
            },
            Reply::Nothing | Reply::Status(..) | Reply::Cut | Reply::Endless(_) => {}
        }
        if method == "tools/call" && script.later.is_some() {
            let changed = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n";
            write(changed.as_bytes());
        }
    }
}
