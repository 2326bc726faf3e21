//! Writing real files, with grants and approvals.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use backstop_builtin_tools::FsWrite;
use backstop_tool::{Admitted, Grants, JsonText, Tool, ToolContext, ToolError, Toolset};
use layer0::Timestamp;
use serde_json::{Value, json};

struct Files {
    folder: tempfile::TempDir,
    outside: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let files =
            Self { folder: tempfile::tempdir().unwrap(), outside: tempfile::tempdir().unwrap() };
        std::fs::create_dir(files.path("out")).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn admit(&self, arguments: impl Into<JsonText>) -> Result<Admitted, ToolError> {
        let base = std::fs::canonicalize(self.folder.path()).unwrap();
        let grants = Grants::parse([format!("fs:write:{}/out/**", base.display())]).unwrap();
        Toolset::new().with(FsWrite::new(&base)).unwrap().admit("fs_write", arguments, &grants)
    }

    async fn write(&self, path: &str, content: &str) -> Result<Value, ToolError> {
        call(&self.admit(json!({"path": path, "content": content}))?).await
    }

    /// Returns the arguments of the approval for a call.
    async fn propose(&self, path: &str, content: &str) -> Result<JsonText, ToolError> {
        let admitted = self.admit(json!({"path": path, "content": content}))?;
        let context = context(&admitted);
        let proposed = admitted.tool().proposal(&admitted.arguments, &context).await?;
        Ok(proposed.unwrap())
    }

    fn left(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).unwrap();
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.unwrap().file_name().into_string().unwrap()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }
}

fn context(admitted: &Admitted) -> ToolContext {
    let mut context =
        ToolContext::new("run_1".into(), "s-1".into(), "c1".into(), Timestamp::default());
    context.granted = admitted.needs().clone();
    context
}

async fn call(admitted: &Admitted) -> Result<Value, ToolError> {
    let answer = admitted.tool().call(&admitted.arguments, &context(admitted)).await?;
    Ok(answer.value())
}

/// Spec: N4
#[tokio::test]
async fn a_file_is_made_or_replaced_whole() {
    let files = Files::new();
    let made = files.write("out/a.txt", "one\n").await.unwrap();
    assert_eq!(made, json!({"path": "out/a.txt", "bytes": 4, "created": true}));
    let mode = std::fs::metadata(files.path("out/a.txt")).unwrap().mode() & 0o777;
    std::fs::write(files.path("plain"), "").unwrap();
    let plain = std::fs::metadata(files.path("plain")).unwrap().mode() & 0o777;
    assert_eq!(mode, plain, "a new file is as open as any other");
    std::fs::set_permissions(files.path("out/a.txt"), PermissionsExt::from_mode(0o750)).unwrap();
    std::fs::hard_link(files.path("out/a.txt"), files.path("linked")).unwrap();
    let replaced = files.write("out/a.txt", "two\n").await.unwrap();
    assert_eq!(replaced, json!({"path": "out/a.txt", "bytes": 4, "created": false}));
    assert_eq!(std::fs::read_to_string(files.path("out/a.txt")).unwrap(), "two\n");
    assert_eq!(std::fs::metadata(files.path("out/a.txt")).unwrap().mode() & 0o777, 0o750);
    // The file is replaced by another one under the same name: readers of the old one are not affected.
    assert_eq!(std::fs::read_to_string(files.path("linked")).unwrap(), "one\n");
    let again = files.write("out/a.txt", "two\n").await.unwrap();
    assert_eq!(again, json!({"path": "out/a.txt", "bytes": 4, "unchanged": true}));
    assert_eq!(files.left("out"), ["a.txt"], "nothing temporary is left");
}

/// Spec: N4, A1
#[tokio::test]
async fn a_person_is_shown_what_changes() {
    let files = Files::new();
    std::fs::write(files.path("out/a.txt"), "one\ntwo\n").unwrap();
    let proposed = files.propose("out/a.txt", "one\n2\n").await.unwrap().value();
    let diff = "--- out/a.txt\n+++ out/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n";
    assert_eq!(proposed["diff"], diff);
    assert_eq!(
        (&proposed["path"], &proposed["content"]),
        (&json!("out/a.txt"), &json!("one\n2\n"))
    );
    let made = files.propose("out/new.txt", "x\n").await.unwrap().value();
    assert_eq!(made["diff"], "--- /dev/null\n+++ out/new.txt\n@@ -0,0 +1 @@\n+x\n");
    assert_eq!(made["replaces"], "nothing");
    assert_eq!(files.left("out"), ["a.txt"], "nothing is written for a proposal");
}

/// Spec: N4, A1
#[tokio::test]
async fn what_changed_after_the_approval_is_kept() {
    let files = Files::new();
    let file = files.path("out/a.txt");
    for (before, after) in [(Some("one"), Some("two")), (None, Some("two")), (Some("one"), None)] {
        let put = |text: Option<&str>| match text {
            Some(text) => std::fs::write(&file, text).unwrap(),
            None => drop(std::fs::remove_file(&file)),
        };
        put(before);
        let approved = files.admit(files.propose("out/a.txt", "new").await.unwrap()).unwrap();
        put(after);
        let error = call(&approved).await.unwrap_err();
        assert_eq!(
            error.kind().to_string(),
            "`out/a.txt` is not written: it changed after a person agreed"
        );
        assert_eq!(error.author_code().map(|code| &**code), Some("CHANGED"));
        assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), after);
        put(before);
        call(&approved).await.unwrap();
        // The same call may run again after its process died.
        assert_eq!(call(&approved).await.unwrap()["unchanged"], true);
    }
}

/// Spec: N4, A1. A link on the way to the file is turned after a person agreed.
#[tokio::test]
async fn write_goes_where_the_person_was_shown() {
    let files = Files::new();
    for folder in ["a", "b"] {
        std::fs::create_dir(files.path("out").join(folder)).unwrap();
    }
    let link = files.path("out/link");
    symlink("a", &link).unwrap();
    let proposed = files.propose("out/link/f.txt", "hello").await.unwrap();
    let file = std::fs::canonicalize(files.path("out/a")).unwrap().join("f.txt");
    assert_eq!(proposed.value()["file"], json!(file));
    std::fs::remove_file(&link).unwrap();
    symlink("b", &link).unwrap();
    for held in [None, Some("hello")] {
        if let Some(held) = held {
            std::fs::write(files.path("out/b/f.txt"), held).unwrap();
        }
        let error = call(&files.admit(proposed.clone()).unwrap()).await.unwrap_err();
        assert_eq!(error.author_code().map(|code| &**code), Some("CHANGED"));
        assert!(!error.to_string().contains("out/b"), "where it leads is not told: {error}");
    }
    assert!(files.left("out/a").is_empty(), "nothing was written");
    std::fs::remove_file(&link).unwrap();
    symlink("a", &link).unwrap();
    call(&files.admit(proposed).unwrap()).await.unwrap();
    assert_eq!(files.left("out/a"), ["f.txt"]);
}

/// Spec: Y1, N4
#[tokio::test]
async fn writing_stays_inside_what_is_granted() {
    let files = Files::new();
    let outside = files.outside.path();
    std::fs::write(outside.join("secret"), "kept").unwrap();
    symlink(outside, files.path("out/link")).unwrap();
    symlink(outside.join("secret"), files.path("out/file")).unwrap();
    symlink(outside.join("none"), files.path("out/dangling")).unwrap();
    for path in ["a.txt", "out/../a.txt", "/etc/x", "out/link/x", "out/file", "out/dangling"] {
        let refused = files.write(path, "x").await.unwrap_err();
        assert_eq!(refused.to_string(), format!("tool `fs_write` requires `fs:write:{path}`"));
    }
    assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), "kept");
    assert!(!outside.join("none").exists() && !outside.join("x").exists());
    // A link to a file inside is followed, and remains a link.
    std::fs::write(files.path("out/a.txt"), "one").unwrap();
    symlink("a.txt", files.path("out/alias")).unwrap();
    files.write("out/alias", "two").await.unwrap();
    assert_eq!(std::fs::read_to_string(files.path("out/a.txt")).unwrap(), "two");
    assert!(std::fs::symlink_metadata(files.path("out/alias")).unwrap().is_symlink());
}

/// Spec: Y1. What was judged is what is written, even when links change in between.
#[tokio::test]
async fn a_folder_that_became_a_link_leads_nowhere() {
    let files = Files::new();
    std::fs::create_dir(files.path("out/sub")).unwrap();
    let admitted = files.admit(json!({"path": "out/sub/x", "content": "x"})).unwrap();
    std::fs::remove_dir(files.path("out/sub")).unwrap();
    symlink(files.outside.path(), files.path("out/sub")).unwrap();
    let error = call(&admitted).await.unwrap_err();
    assert!(error.to_string().contains("changed between being judged"), "{error}");
    assert_eq!(std::fs::read_dir(files.outside.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn what_cannot_be_written_says_why() {
    let files = Files::new();
    std::fs::create_dir(files.path("out/folder")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(files.path("out/pipe")).status();
    assert!(made.unwrap().success());
    for (path, why) in [
        ("out/none/a.txt", "path `out/none/a.txt` is in a folder that does not exist"),
        ("out/folder", "path `out/folder` is not a file"),
        ("out/pipe", "path `out/pipe` is not a file"),
    ] {
        for error in [
            files.write(path, "x").await.unwrap_err(),
            files.propose(path, "x").await.map(|_| ()).unwrap_err(),
        ] {
            assert_eq!(error.to_string(), format!("invalid input: {why}"));
        }
    }
    let unknown = json!({"path": "out/a", "content": "", "mode": "append"});
    let error = files.admit(unknown).err().unwrap();
    assert_eq!(error.to_string(), "invalid input: mode is not known");
}

/// Spec: N4. A full disk, a killed process: the old content or the new one, never a part.
#[tokio::test]
async fn a_write_that_fails_leaves_the_old_content() {
    let files = Files::new();
    std::fs::write(files.path("out/a.txt"), "old").unwrap();
    let content = "x".repeat(64 * 1024);
    let reading = {
        let file = files.path("out/a.txt");
        std::thread::spawn(move || {
            let mut seen = std::collections::BTreeSet::new();
            while !seen.contains(&(64 * 1024)) {
                seen.insert(std::fs::read(&file).unwrap().len());
            }
            seen
        })
    };
    files.write("out/a.txt", &content).await.unwrap();
    let seen = reading.join().unwrap();
    assert!(seen.iter().all(|length| [3, 64 * 1024].contains(length)), "{seen:?}");
    assert!(FsWrite::new(".").spec().approval);
}
