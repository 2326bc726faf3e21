//! The pages of `fs_read`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use backstop_builtin_tools::FsRead;
use backstop_tool::{Grants, ToolContext, Toolset};
use layer0::Timestamp;
use serde_json::{Value, json};

/// A file with these bytes, read by a tool whose answers have at most `max` bytes.
struct File {
    folder: tempfile::TempDir,
    max: usize,
}

impl File {
    fn new(bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("f"), bytes).unwrap();
        Self { folder, max: 16 * 1024 }
    }

    async fn read(&self, arguments: Value) -> Value {
        let tool = FsRead::new(self.folder.path()).max_answer_bytes(self.max);
        let tools = Toolset::new().with(tool).unwrap();
        let admitted =
            tools.admit("fs_read", arguments, &Grants::parse(["fs:read"]).unwrap()).unwrap();
        let mut context =
            ToolContext::new("run_1".into(), "s-1".into(), "c1".into(), Timestamp::default());
        context.granted = admitted.needs().clone();
        admitted.tool().call(&admitted.arguments, &context).await.unwrap().value()
    }

    /// Reads page after page, and returns their texts; each except the last has the offset of the next one.
    async fn pages(&self, limit: Option<u64>) -> Vec<String> {
        let (mut pages, mut offset) = (Vec::new(), 0);
        loop {
            let mut arguments = json!({"path": "f", "offset": offset});
            if let Some(limit) = limit {
                arguments["limit"] = json!(limit);
            }
            let page = self.read(arguments).await;
            assert!(limit.is_some() || page.to_string().len() <= self.max, "{offset}");
            assert!(page.get("offset").is_none(), "{page}");
            pages.push(page["text"].as_str().unwrap().to_owned());
            match page["next_offset"].as_u64() {
                Some(next) => {
                    assert!(next > offset);
                    offset = next;
                }
                None => return pages,
            }
        }
    }
}

/// Spec: N4
#[tokio::test]
async fn pages_end_between_characters() {
    let text = "aé€𝄞".repeat(5);
    let file = File::new(text.as_bytes());
    for limit in 1..24 {
        let pages = file.pages(Some(limit)).await;
        assert_eq!(pages.concat(), text, "{limit}");
        let is_short = |page: &String| {
            page.len() <= usize::try_from(limit).unwrap() || page.chars().count() == 1
        };
        assert!(pages.iter().all(is_short), "{limit}: {pages:?}");
    }
    for border in 16 * 1024 - 4..16 * 1024 + 4 {
        for character in ["é", "€", "𝄞"] {
            let text = ["x".repeat(border), character.repeat(20)].concat();
            assert_eq!(File::new(text.as_bytes()).pages(Some(16 * 1024)).await.concat(), text);
        }
    }
}

/// Spec: N4
#[tokio::test]
async fn default_pages_fit_into_one_result() {
    for piece in ["x", "é", "€", "𝄞", "\"", "\n", "\u{1}", "\\ä\t"] {
        let text = piece.repeat(40_000);
        let mut file = File::new(text.as_bytes());
        let pages = file.pages(None).await;
        assert_eq!(pages.concat(), text, "{piece:?}");
        assert!(pages[0].len() > 2_000, "{piece:?}");
        file.max = 1_000;
        let first = file.read(json!({"path": "f"})).await;
        assert!((900..=1_000).contains(&first.to_string().len()), "{piece:?}");
        file.max = 0;
        assert!(!file.read(json!({"path": "f"})).await["text"].as_str().unwrap().is_empty());
    }
}

/// Spec: N4
#[tokio::test]
async fn an_offset_inside_a_character_begins_with_it() {
    let file = File::new("xé€𝄞y".as_bytes());
    let begins = [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10];
    for (offset, begin) in begins.into_iter().enumerate() {
        let page = file.read(json!({"path": "f", "offset": offset})).await;
        assert_eq!(page["text"], "xé€𝄞y"[begin..], "{offset}");
        assert_eq!(page.get("offset"), (begin < offset).then(|| json!(begin)).as_ref());
    }
}

/// Spec: N4
#[tokio::test]
async fn binary_output_is_shown_as_such() {
    let bytes = b"a\xff\xfeb\xe2\x82c\x80\x80\x80\x80\x80\xf0\x9d\x84";
    let file = File::new(bytes);
    for limit in 1..20 {
        let pages = file.pages(Some(limit)).await;
        assert_eq!(pages.concat(), String::from_utf8_lossy(bytes), "{limit}");
    }
}

/// Spec: N4
#[tokio::test]
async fn nothing_is_behind_the_end() {
    let empty = File::new(b"").read(json!({"path": "f"})).await;
    assert_eq!(empty, json!({"path": "f", "text": ""}));
    let file = File::new("xé".as_bytes());
    for offset in [3, 4, u64::MAX] {
        let page = file.read(json!({"path": "f", "offset": offset})).await;
        assert_eq!(page, json!({"path": "f", "text": "", "total_bytes": 3}), "{offset}");
    }
    let all = file.read(json!({"path": "f", "limit": 3})).await;
    assert_eq!(all, json!({"path": "f", "text": "xé"}));
}
