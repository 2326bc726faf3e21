//! Listing real folders.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use backstop_builtin_tools::FsList;
use backstop_tool::{Admitted, Grants, ToolContext, ToolError, Toolset};
use layer0::Timestamp;
use serde_json::{Value, json};

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for sub in ["src/deep", "target", ".git", "node_modules/x"] {
        std::fs::create_dir_all(root.join(sub)).unwrap();
    }
    for (file, text) in [
        (".gitignore", "target\n"),
        ("a.rs", "12345"),
        ("b.txt", ""),
        ("src/c.rs", "1"),
        ("src/deep/d.rs", "22"),
        ("target/e.rs", "333"),
        (".git/config", ""),
        ("node_modules/x/f.rs", ""),
    ] {
        std::fs::write(root.join(file), text).unwrap();
    }
    symlink("/etc", root.join("src/link")).unwrap();
    folder
}

fn admit(base: &Path, grant: &str, arguments: Value) -> Result<Admitted, ToolError> {
    let base = std::fs::canonicalize(base).unwrap();
    let grants = Grants::parse([format!("fs:read:{}{grant}", base.display())]).unwrap();
    Toolset::new().with(FsList::new(&base)).unwrap().admit("fs_list", arguments, &grants)
}

async fn call(admitted: &Admitted) -> Result<Value, ToolError> {
    let mut context =
        ToolContext::new("run_1".into(), "s-1".into(), "c1".into(), Timestamp::default());
    context.granted = admitted.needs().clone();
    admitted.tool().call(&admitted.arguments, &context).await.map(|output| output.value())
}

async fn list(base: &Path, arguments: Value) -> Value {
    call(&admit(base, "/**", arguments).unwrap()).await.unwrap()
}

fn names(answer: &Value) -> Vec<&str> {
    let entries = answer["entries"].as_array().unwrap().iter();
    entries.map(|entry| entry["name"].as_str().unwrap()).collect()
}

/// Spec: N4
#[tokio::test]
async fn a_folder_is_listed_whole() {
    let folder = folder();
    let answer = list(folder.path(), json!({"path": "."})).await;
    assert_eq!(
        answer,
        json!({"path": ".", "entries": [
            {"name": ".git", "type": "folder"},
            {"name": ".gitignore", "type": "file", "bytes": 7},
            {"name": "a.rs", "type": "file", "bytes": 5},
            {"name": "b.txt", "type": "file", "bytes": 0},
            {"name": "node_modules", "type": "folder"},
            {"name": "src", "type": "folder"},
            {"name": "target", "type": "folder"},
        ]})
    );
    let answer = list(folder.path(), json!({"path": "src"})).await;
    assert_eq!(answer["entries"][2], json!({"name": "link", "type": "link"}));
}

/// Spec: N4
#[tokio::test]
async fn folders_below_leave_out_what_is_ignored() {
    let folder = folder();
    let answer = list(folder.path(), json!({"path": ".", "recursive": true})).await;
    let expected = ["a.rs", "b.txt", "src", "src/c.rs", "src/deep", "src/deep/d.rs", "src/link"];
    assert_eq!(names(&answer), expected);
    let why: Vec<&Value> =
        answer["skipped"].as_array().unwrap().iter().map(|row| &row["why"]).collect();
    assert_eq!(why, ["hidden", "named by an ignore file", "installed packages"]);
    let all = json!({"path": ".", "recursive": true, "everything": true, "pattern": "*.rs"});
    let answer = list(folder.path(), all).await;
    let expected = ["a.rs", "node_modules/x/f.rs", "src/c.rs", "src/deep/d.rs", "target/e.rs"];
    assert_eq!(names(&answer), expected);
    assert_eq!(answer.get("skipped"), None);
}

#[tokio::test]
async fn patterns_are_of_names_or_of_paths() {
    let folder = folder();
    let check = async |pattern: &str, expected: &[&str]| {
        let arguments = json!({"path": ".", "recursive": true, "pattern": pattern});
        let answer = list(folder.path(), arguments).await;
        assert_eq!(names(&answer), expected, "{pattern}");
    };
    check("[a-c].*", &["a.rs", "b.txt", "src/c.rs"]).await;
    check("src/*.rs", &["src/c.rs"]).await;
    check("./src/**/*.rs", &["src/c.rs", "src/deep/d.rs"]).await;
    check("none", &[]).await;
    let admitted = admit(folder.path(), "/**", json!({"path": ".", "pattern": "***"})).unwrap();
    let error = call(&admitted).await.unwrap_err();
    assert!(error.to_string().starts_with("invalid input: pattern does not parse"), "{error}");
}

/// Spec: N4
#[tokio::test]
async fn a_listing_is_bounded_and_counts_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..210 {
        std::fs::write(folder.path().join(format!("{number:03}")), "").unwrap();
    }
    let answer = list(folder.path(), json!({"path": "."})).await;
    assert_eq!((names(&answer).len(), &answer["more"]), (200, &json!(10)));
    let answer = list(folder.path(), json!({"path": ".", "max_entries": 2.0})).await;
    assert_eq!((names(&answer), &answer["more"]), (vec!["000", "001"], &json!(208)));
}

/// Spec: Y1, N4
#[tokio::test]
async fn listing_stays_inside_what_is_granted() {
    let folder = folder();
    for (grant, arguments, missing) in [
        ("/src/**", json!({"path": "."}), "fs:read:."),
        ("/src/**", json!({"path": "src/link"}), "fs:read:src/link"),
        ("/src/**", json!({"path": "src/../target"}), "fs:read:src/../target"),
        ("/src", json!({"path": "src", "recursive": true}), "fs:read:src/**"),
        ("/src/*", json!({"path": "src/deep", "recursive": true}), "fs:read:src/deep/**"),
    ] {
        let refused = admit(folder.path(), grant, arguments).err().unwrap();
        let expected = format!("tool `fs_list` requires `{missing}`");
        assert_eq!(refused.to_string(), expected, "{grant}");
    }
    for (path, why) in [("a.rs", "is not a folder"), ("none", "cannot be read")] {
        let admitted = admit(folder.path(), "/**", json!({"path": path})).unwrap();
        let error = call(&admitted).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("invalid input: path `{path}` {why}")), "{error}");
    }
    // A link that changes after the check has no effect.
    let flip = folder.path().join("flip");
    symlink("src", &flip).unwrap();
    let admitted = admit(folder.path(), "/src/**", json!({"path": "flip"})).unwrap();
    std::fs::remove_file(&flip).unwrap();
    symlink("/etc", &flip).unwrap();
    let error = call(&admitted).await.unwrap_err();
    assert!(error.to_string().contains("`flip` changed between being judged"), "{error}");
}

/// Spec: Y1. While another program turns the folder, an answer is of the judged folder, or there is none.
#[tokio::test(flavor = "multi_thread")]
async fn turned_folder_shows_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (folder, file) in [("judged", "ours"), ("other", "private")] {
        std::fs::create_dir(path(folder)).unwrap();
        std::fs::write(path(folder).join(file), "").unwrap();
    }
    let admitted = admit(folder.path(), "/judged", json!({"path": "judged"})).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                std::fs::rename(path("judged"), path("kept")).unwrap();
                symlink("other", path("judged")).unwrap();
                std::fs::remove_file(path("judged")).unwrap();
                std::fs::rename(path("kept"), path("judged")).unwrap();
            }
        });
        let (mut listed, mut refused) = (0_u32, 0_u32);
        let runtime = tokio::runtime::Handle::current();
        while listed < 500 || refused < 500 {
            match tokio::task::block_in_place(|| runtime.block_on(call(&admitted))) {
                Ok(answer) if names(&answer) == ["ours"] => listed += 1,
                Ok(answer) => {
                    is_over.store(true, Ordering::Relaxed);
                    panic!("{answer}");
                }
                Err(_) => refused += 1,
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
