//! Named files that are not regular: devices, pipes, folders, and files without end.

use std::process::Stdio;

use crate::bench::{Bench, Ran};

const SCRIPT: &str = "[[model]]\ntext = \"hello\"\n";

/// Substitutes for files, each with its error message.
fn no_files(bench: &Bench) -> [(String, &'static str); 4] {
    let pipe = bench.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let large = bench.path().join("large");
    std::fs::File::create(&large).unwrap().set_len(21 * 1024 * 1024).unwrap();
    [
        ("/dev/zero".to_owned(), "is not a regular file"),
        (pipe.display().to_string(), "is not a regular file"),
        (bench.path().display().to_string(), "is a folder"),
        (large.display().to_string(), "is larger than"),
    ]
}

/// Spec: C5
#[test]
fn endless_file_is_refused_everywhere() {
    let bench = Bench::new();
    bench.agent(
        "[[model]]\ntool_calls = [{ id = \"c1\", name = \"ask\", arguments = {} }]\n",
        "[[tools]]\nkind = \"command\"\nname = \"ask\"\ndescription = \"asks\"\ncommand = [\"true\"]\n\
         approval = true\n[agent.policy]\ngrant = [\"process:spawn\"]\n",
    );
    bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval");
    let run = bench.run(&["runs", "--json"]).ok().json()[0]["run"].as_str().unwrap().to_owned();
    for (file, said) in no_files(&bench) {
        let said = format!("error: {file}: {said}");
        let check = |args: &[&str]| {
            bench.run(args).fails(2, &said);
        };
        check(&["run", &file]);
        check(&["rehearse", &file]);
        check(&["run", "agent.toml", "--input", &format!("@{file}")]);
        check(&["run", "agent.toml", "--image", &file]);
        check(&["resume", &run, "--agent", &file]);
        check(&["replay", &run, "--agent", &file]);
        check(&["fork", &run, "--at", "1", "--agent", &file]);
        let model =
            format!("[agent]\ninput = \"x\"\n[model]\nprovider = \"script\"\nscript = '{file}'\n");
        bench.write("other.toml", &model);
        check(&["run", "other.toml"]);
        let model = "[model]\nprovider = \"script\"\nscript = 'script.toml'\n";
        let agent = format!("[agent]\ninput = \"x\"\ninstructions_file = '{file}'\n{model}");
        bench.write("other.toml", &agent);
        check(&["run", "other.toml"]);
        let store = bench.run(&["runs", "--store", &format!("sqlite:{file}")]);
        store.fails(5, &format!("error: cannot open database `{file}`"));
    }
}

/// Spec: C5
#[test]
fn standard_input_is_read_up_to_its_limit() {
    let bench = Bench::new();
    bench.agent(SCRIPT, "");
    let ask = |input: &str| {
        let mut command = bench.command(&["run", "agent.toml", "--input", "-"]);
        command.stdin(std::fs::File::open(bench.path().join(input)).unwrap());
        Ran::of(command.stdout(Stdio::piped()).output().unwrap())
    };
    bench.write("text", "how are you?");
    ask("text").ok();
    std::fs::write(bench.path().join("bytes"), [0xff]).unwrap();
    ask("bytes").fails(2, "error: standard input: cannot be taken: invalid utf-8");
    let more = ask("/dev/zero").fails(2, "cannot be taken: there is more than 16 MiB of it");
    assert!(
        more.err.contains("  hint: --input - reads UTF-8 text of at most 16 MiB"),
        "{}",
        more.err
    );
}

/// Spec: C5
#[test]
fn a_file_is_taken_up_to_its_limit() {
    let bench = Bench::new();
    bench.agent(SCRIPT, "");
    let most = 16 * 1024 * 1024;
    bench.write("text", &"x".repeat(most));
    let asked = bench.run(&["run", "agent.toml", "--input", "@text"]).ok();
    assert_eq!(asked.out, "hello\n");
    bench.write("text", &"x".repeat(most + 1));
    bench
        .run(&["run", "agent.toml", "--input", "@text"])
        .fails(2, "error: text: is larger than 16 MiB");
}

/// Spec: E7
#[test]
fn refused_session_leaves_one_error() {
    let bench = Bench::new().with("A_KEY", "hunter22-and-more");
    bench.agent(SCRIPT, "api_key_env = \"A_KEY\"\n");
    let refused = bench.run(&["run", "agent.toml", "--session", "hunter22-and-more"]);
    let refused = refused.fails(1, "error: input.invalid: ");
    let says = |what: &str| refused.err.contains(what);
    assert!(!says("warning") && !says("look further") && !says("hunter22"), "{}", refused.err);
    let json = bench.run(&["run", "agent.toml", "--json", "--session", "hunter22-and-more"]);
    assert_eq!(json.json()[0]["error"]["code"], "input.invalid");
    assert_eq!((json.err.as_str(), json.code), ("", 1));
    bench.run(&["runs"]).ok();
}
