//! A folder to run the command in.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A folder with a store of its own; the command gets no variables of the environment.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

/// The result of the command.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    /// Copies the triage example to the folder and returns the text of its agent file.
    pub(crate) fn triage(&self) -> String {
        let from = repository().join("examples/triage");
        copy(&from, &self.path().join("triage"));
        std::fs::read_to_string(from.join("agent.toml")).unwrap()
    }

    /// Writes an agent with a scripted model.
    pub(crate) fn agent(&self, script: &str, more: &str) {
        self.write("script.toml", script);
        let agent = "[agent]\ninput = \"question\"\n[model]\nprovider = \"script\"\nscript = \"script.toml\"\n";
        self.write("agent.toml", &format!("{agent}{more}"));
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backstop"));
        command.args(args).current_dir(self.path()).env_clear().stdin(Stdio::null());
        command.env("PATH", std::env::var("PATH").unwrap());
        command.env("XDG_DATA_HOME", self.path().join("data")).env("HOME", self.path());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }

    /// Lists the files of the folder, at any depth.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        fn list(folder: &Path, files: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { list(&path, files) } else { files.push(path) }
            }
        }
        let mut files = Vec::new();
        list(self.path(), &mut files);
        files.sort();
        files
    }
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub(crate) fn fails(self, code: i32, text: &str) -> Self {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        assert!(self.err.contains(text), "{text} is not in: {}", self.err);
        self
    }

    /// Reads standard output as JSON lines.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
