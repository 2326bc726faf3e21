//! Standard streams that are not read, or full, with signals meanwhile.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, PipeReader, Read, pipe};
use std::process::{Child, Command, Stdio};

use crate::bench::{Bench, Ran};
use crate::running::{ASKS, REFUNDS};
use crate::terminal::{kill, stopping};

const SAYS: &str = "[[model]]\ntext = \"ok\"\n";

/// An agent with much output: it calls tools in batches of 25, then continues with the rest of its script.
fn busy(batches: usize, rest: &str) -> Bench {
    let bench =
        Bench::new().with("BACKSTOP_STORE", "sqlite:x.db").with("TOKIO_WORKER_THREADS", "1");
    let bench = bench.with("BACKSTOP_LOG", "debug");
    let call =
        |n| format!("{{ id = \"c{n}\", name = \"shout\", arguments = {{ x = \"{n:090}\" }} }}");
    let batch = |n: usize| {
        let calls: Vec<String> = (n * 25..n * 25 + 25).map(call).collect();
        format!("[[model]]\ntool_calls = [{}]\n", calls.join(", "))
    };
    let script: String = (0..batches).map(batch).collect();
    bench.agent(
        &format!("{script}{rest}"),
        "[agent.policy]\ngrant = [\"process:spawn\"]\n[agent.budget]\nmax_tool_calls = 10000\n\
         [[tools]]\nkind = \"command\"\nname = \"shout\"\ndescription = \"d\"\ncommand = [\"true\"]\n\
         [[tools]]\nkind = \"command\"\nname = \"sleep\"\ndescription = \"d\"\n\
         command = [\"sh\", \"-c\", \"echo $$ > pid; exec sleep 1000\"]\n",
    );
    bench
}

/// Starts the command with an unread standard error that holds one page.
fn unread(bench: &Bench) -> (Child, PipeReader) {
    let (reader, writer) = pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    let mut command = bench.command(&["run", "agent.toml"]);
    (command.stdout(Stdio::piped()).stderr(writer).spawn().unwrap(), reader)
}

/// Spec: B3, V1
#[test]
fn an_unread_pipe_holds_up_no_run() {
    let bench = busy(4, SAYS);
    let (mut child, unread) = unread(&bench);
    let mut answer = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    let said = (answer != "ok\n").then(|| std::io::read_to_string(&unread).unwrap());
    assert_eq!((answer.as_str(), said), ("ok\n", None));
    drop(unread);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Spec: B3. The tools of the run are killed, too.
#[test]
fn signals_stop_a_run_behind_an_unread_pipe() {
    for signal in stopping() {
        let rest = "[[model]]\ntool_calls = [{ id = \"s\", name = \"sleep\" }]\n";
        let bench = busy(2, rest);
        let (mut child, unread) = unread(&bench);
        let pid = wait_for(|| {
            let pid = std::fs::read_to_string(bench.path().join("pid")).ok()?;
            pid.ends_with('\n').then(|| pid.trim().to_owned())
        });
        kill(signal, child.id());
        wait_for(|| {
            let runs = bench.run(&["runs", "--json"]).ok().json();
            (runs[0]["outcome"] == "cancelled").then_some(())
        });
        let alive = Command::new("kill").args(["-0", &pid]).stderr(Stdio::null()).status();
        assert!(!alive.unwrap().success(), "{signal}: the tool lives");
        drop(unread);
        assert_eq!(child.wait().unwrap().code(), Some(3), "{signal}");
    }
}

/// Spec: B3, V1. Events that nobody reads wait in a full pipe; one signal ends the command all the same.
#[test]
fn unread_events_never_outlive_a_signal() {
    for signal in ["-TERM", "-INT"] {
        let bench = busy(2, "[[model]]\ntool_calls = [{ id = \"s\", name = \"sleep\" }]\n");
        let (unread, writer) = pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
        let mut command = bench.command(&["run", "agent.toml", "--events"]);
        let mut child = command.stdout(writer).stderr(Stdio::null()).spawn().unwrap();
        drop(command);
        wait_for(|| bench.path().join("pid").exists().then_some(()));
        kill(signal, child.id());
        let code = child.wait().unwrap().code().unwrap();
        assert!([3, 128 + 15, 128 + 2].contains(&code), "{signal}: {code}");
        let run = bench.run(&["runs", "--json"]).ok().json().remove(0);
        assert_eq!(run["outcome"], "cancelled", "{signal}: {run}");
        drop(unread);
    }
}

/// Spec: B3
#[test]
fn a_hangup_that_is_ignored_stops_nothing() {
    let bench = Bench::new();
    let waits = "touch begun; until [ -e go ]; do sleep 0.01; done";
    bench.agent(
        "[[model]]\ntool_calls = [{ id = \"c\", name = \"waits\" }]\n[[model]]\ntext = \"ok\"\n",
        &format!(
            "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\n\
             name = \"waits\"\ndescription = \"d\"\ncommand = [\"sh\", \"-c\", \"{waits}\"]\n"
        ),
    );
    let mut child = under_shell(&bench, "trap '' HUP; exec \"$BACKSTOP\" run agent.toml")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(|| bench.path().join("begun").exists().then_some(()));
    kill("-HUP", child.id());
    bench.write("go", "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Returns a command that starts the line in a shell.
fn under_shell(bench: &Bench, line: &str) -> Command {
    let like = bench.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(bench.path()).env_clear().stdin(Stdio::null());
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("BACKSTOP", env!("CARGO_BIN_EXE_backstop"));
    command
}

/// Polls until there is a value.
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        std::thread::yield_now();
    }
}

/// Lost lines are reported, and the output before and after them is complete.
#[test]
fn a_slow_reader_gets_everything() {
    let bench = busy(2, SAYS);
    let (child, mut unread) = unread(&bench);
    let mut said = String::new();
    unread.read_to_string(&mut said).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(said.matches("✓ shout").count(), 50, "{said}");
    assert!(said.contains("look further:"), "{said}");
}

/// Spec: C3
#[test]
fn full_streams_end_with_a_documented_code() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(REFUNDS, ASKS);
    bench.write("asks.toml", &std::fs::read_to_string(bench.path().join("agent.toml")).unwrap());
    let asks = std::fs::read_to_string(bench.path().join("asks.toml")).unwrap();
    bench.write("asks.toml", &asks.replace("script.toml", "asks-script.toml"));
    bench.write("asks-script.toml", REFUNDS);
    bench.agent(SAYS, "");
    bench.write("bad.toml", "[agent]\ninput = 7\n");
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    for (args, no_out, no_err) in [
        (&["run", "agent.toml"][..], 1, 0),
        (&["run", "agent.toml", "--json"], 1, 0),
        (&["run", "asks.toml"], 4, 4),
        (&["run", "asks.toml", "--json"], 4, 4),
        (&["run", "bad.toml"], 2, 2),
        (&["dance"], 2, 2),
        (&["--help"], 1, 0),
        (&["codes"], 1, 0),
        (&["trace", "run_0"], 2, 2),
        (&["errors", "show", "err_0"], 2, 2),
    ] {
        for log in ["off", "trace"] {
            let code = |out: Stdio, err: Stdio| {
                let mut command = bench.command(args);
                command.env("BACKSTOP_LOG", log).stdout(out).stderr(err);
                command.status().unwrap().code()
            };
            assert_eq!(code(full(), Stdio::null()), Some(no_out), "{args:?}, no output");
            assert_eq!(code(Stdio::null(), full()), Some(no_err), "{args:?}, no errors");
            assert_eq!(code(full(), full()), Some(no_out), "{args:?}, neither");
        }
    }
}

/// Spec: S8, C3. A limit of a file's size, where the system would end the process.
#[test]
fn file_past_its_limit_is_full() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(SAYS, "");
    bench.run(&["run", "agent.toml"]).ok();
    let input = "x".repeat(100_000);
    bench.write("long", &input);
    // In blocks of 512 or 1,024 bytes, depending on the shell.
    let limited = "ulimit -f 90; exec \"$BACKSTOP\" run agent.toml --json --input @long";
    let mut command = under_shell(&bench, limited);
    let ran = Ran::of(command.output().unwrap()).fails(5, "").json().remove(0);
    assert_eq!(ran["error"]["chain"][1], "no space left for the log", "{ran}");
    bench.run(&["run", "agent.toml", "--input", "@long"]).ok();
}

/// Spec: S8, C3. The end of a run whose store was full is not recorded, so the run is resumed, not begun anew.
#[test]
fn full_store_leads_to_resume() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    // The answer is larger than the limit, and the begin of a run is smaller.
    bench.agent(&format!("[[model]]\ntext = \"{}\"\n", "x".repeat(3_000_000)), "");
    let limited = "ulimit -f 2000; exec \"$BACKSTOP\" run agent.toml";
    let ran = Ran::of(under_shell(&bench, limited).output().unwrap());
    let ran = ran.fails(5, "no space left for the log");
    let run = bench.run(&["runs", "--json"]).ok().json().remove(0);
    let run = run["run"].as_str().unwrap().to_owned();
    assert!(ran.err.contains(&format!("backstop resume {run}\n")), "{}", ran.err);
    bench.run(&["resume", &run]).ok();
    assert_eq!(bench.run(&["runs", "--json"]).ok().json().len(), 1);
}
