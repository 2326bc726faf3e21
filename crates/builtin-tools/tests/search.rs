//! Files that `fs_search` searches, and files that it reports as skipped.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::os::unix::fs::symlink;
use std::path::Path;

use backstop_builtin_tools::FsSearch;
use backstop_tool::{Grants, ToolContext, ToolError, Toolset};
use layer0::Timestamp;
use serde_json::{Value, json};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, bytes) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    async fn search(&self, arguments: Value) -> Result<Value, ToolError> {
        let tools = Toolset::new().with(FsSearch::new(self.path())).unwrap();
        let real = std::fs::canonicalize(self.path()).unwrap();
        let grants = Grants::parse([format!("fs:read:{}/**", real.display())]).unwrap();
        let admitted = tools.admit("fs_search", arguments, &grants)?;
        let mut context =
            ToolContext::new("run_1".into(), "s-1".into(), "c1".into(), Timestamp::default());
        context.granted = admitted.needs().clone();
        let output = admitted.tool().call(&admitted.arguments, &context).await?;
        Ok(output.value())
    }

    /// Searches for `here`, and returns the files found and the reasons for skipped ones.
    async fn found(&self, path: &str, everything: bool) -> (Vec<String>, Vec<String>) {
        let arguments = json!({"path": path, "pattern": "here", "everything": everything});
        let answer = self.search(arguments).await.unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let files = answer["matches"].as_array().unwrap().iter().map(|found| text(&found["file"]));
        let skipped = answer["skipped"].as_array().cloned().unwrap_or_default();
        let skipped = skipped.iter().map(|row| {
            let named: Vec<_> = row["first"].as_array().unwrap().iter().map(text).collect();
            let why = text(&row["why"]);
            let why = why.split([':', ';']).next().unwrap();
            format!("{why} {} {}", row["count"], named.join(" "))
        });
        (files.collect(), skipped.collect())
    }
}

fn utf16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(bytes).collect()
}

/// Spec: N4
#[tokio::test]
async fn ignored_and_hidden_files_are_skipped_and_counted() {
    let folder = Folder::new(&[
        (".gitignore", b"\xef\xbb\xbftarget/\n*.log\n!keep.log\n!.shown\n/top\n[\n"),
        (".git/config", b"here"),
        (".shown", b"here"),
        ("a.log", b"here"),
        ("keep.log", b"here"),
        ("node_modules/x/index.js", b"here"),
        ("src/.ignore", b"!a.log\n"),
        ("src/a.log", b"here"),
        ("src/main.rs", b"here"),
        ("src/top", b"here"),
        ("target/debug/x", b"here"),
        ("top", b"here"),
    ]);
    let (files, skipped) = folder.found(".", false).await;
    assert_eq!(files, [".shown", "keep.log", "src/a.log", "src/main.rs", "src/top"]);
    assert_eq!(
        skipped,
        [
            "hidden 3 .git .gitignore src/.ignore",
            "named by an ignore file 3 a.log target top",
            "installed packages 1 node_modules",
        ]
    );
    // A path that is named explicitly is searched.
    for path in ["target", "target/debug/x", "node_modules/x", ".git", "a.log"] {
        let (files, skipped) = folder.found(path, false).await;
        assert_eq!((files.len(), skipped.len()), (1, 0), "{path}");
    }
    let (files, skipped) = folder.found(".", true).await;
    assert_eq!((files.len(), skipped.len()), (10, 0));
}

/// Spec: N4. Ignore files are files too: none outside of what was granted is read.
#[tokio::test]
async fn ignore_files_elsewhere_ignore_nothing() {
    let outside = Folder::new(&[("rules", b"*\n")]);
    let folder = Folder::new(&[(".gitignore", b"*\n"), ("sub/a", b"here"), ("sub/b/a", b"here")]);
    symlink(outside.path().join("rules"), folder.path().join("sub/.gitignore")).unwrap();
    let pipe = folder.path().join("sub/b/.ignore");
    assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
    let (files, skipped) = folder.found("sub", false).await;
    assert_eq!(files, ["sub/a", "sub/b/a"]);
    assert_eq!(skipped, ["hidden 2 sub/.gitignore sub/b/.ignore"]);
}

/// Spec: N4
#[tokio::test]
async fn what_is_no_text_is_searched_or_counted() {
    let little = [b"\xff\xfe".to_vec(), utf16("ä\r\nhere 𝄞\r\n", u16::to_le_bytes)].concat();
    let big = [b"\xfe\xff".to_vec(), utf16("ä\nhere 𝄞", u16::to_be_bytes)].concat();
    let mut late = b"here\n".repeat(100_000);
    late.push(0);
    let folder = Folder::new(&[
        ("binary", b"one\n\0here\n"),
        ("late", &late),
        ("latin1", b"\xe4 here \xff\n"),
        ("utf16be", &big),
        ("utf16le", &little),
        ("utf16none", &utf16("here", u16::to_le_bytes)),
        ("utf8", b"\xef\xbb\xbfhere\n"),
        ("empty", b""),
    ]);
    symlink("utf8", folder.path().join("link")).unwrap();
    let pattern = "^here( 𝄞)?$";
    for (file, line, text) in [
        ("utf16be", 2, "here 𝄞"),
        ("utf16le", 2, "here 𝄞"),
        ("utf8", 1, "here"),
        ("late", 1, "here"),
    ] {
        let found = folder.search(json!({"path": file, "pattern": pattern})).await.unwrap();
        let row = json!({"file": file, "line": line, "text": text});
        assert_eq!(found["matches"][0], row);
        assert_eq!(found.get("skipped").is_some(), file == "late", "{file}");
    }
    std::fs::remove_file(folder.path().join("late")).unwrap();
    let (files, skipped) = folder.found(".", false).await;
    assert_eq!(files, ["latin1", "utf16be", "utf16le", "utf8"]);
    assert_eq!(skipped, ["binary 2 binary utf16none", "a link 1 link"]);
}

/// Spec: N4
#[tokio::test]
async fn long_lines_are_searched_to_their_end() {
    let line = |bytes: usize| [b"x".repeat(bytes), b"here\nafter\n".to_vec()].concat();
    let folder =
        Folder::new(&[("a", &line(1024 * 1024)), ("b", &line(17 * 1024 * 1024)), ("c", b"here")]);
    let (files, skipped) = folder.found(".", false).await;
    assert_eq!(files, ["a", "c"]);
    assert_eq!(skipped, ["searched up to a line of more than 16 MiB 1 b"]);
    let found = folder.search(json!({"path": "a", "pattern": "here|after"})).await.unwrap();
    let text = found["matches"][0]["text"].as_str().unwrap();
    assert_eq!(text, format!("…{}here", "x".repeat(60)));
    assert_eq!(found["matches"][1], json!({"file": "a", "line": 2, "text": "after"}));
}

/// Spec: T3
#[tokio::test]
async fn pattern_across_lines_is_invalid() {
    let folder = Folder::new(&[("a", b"here\r\n")]);
    for pattern in ["(", "a\\nb", "[z-a]", "x{1000}{1000}{1000}"] {
        let refused = folder.search(json!({"path": "a", "pattern": pattern})).await.unwrap_err();
        assert!(matches!(refused.kind(), ToolError::InvalidInput(_)), "{pattern}: {refused}");
    }
    for pattern in ["^here$", r"\Ahere", "(?i)HERE", ""] {
        let found = folder.search(json!({"path": "a", "pattern": pattern})).await.unwrap();
        assert_eq!(
            found,
            json!({"matches": [{"file": "a", "line": 1, "text": "here"}]}),
            "{pattern}"
        );
    }
}

/// Spec: N4
#[tokio::test]
async fn what_may_not_be_read_is_counted() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new(&[("a", b"here"), ("closed", b"here"), ("sub/b", b"here")]);
    let mode = |name: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.path().join(name), permissions).unwrap();
    };
    mode("closed", 0);
    mode("sub", 0);
    // Root may read everything.
    let is_root = std::fs::File::open(folder.path().join("closed")).is_ok();
    let (files, skipped) = folder.found(".", false).await;
    mode("sub", 0o700);
    if is_root {
        assert_eq!(files, ["a", "closed", "sub/b"]);
    } else {
        assert_eq!(files, ["a"]);
        assert_eq!(skipped, ["cannot be read 2 closed sub"]);
    }
}
