//! Names, digests and texts that records and stores share.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use backstop_event_log::*;
use layer0::Timestamp;
use layer0::event::{ApprovalRequested, Verdict};
use layer0::failure::Failure;
use layer0::message::Image;
use layer0::operator::Task;
use serde_json::json;

use crate::recording::{at, memory, record, started};

/// Spec: X2
#[test]
fn segments_are_named_after_their_subscription() {
    assert_eq!(segment_id("tell ops", 3).as_str(), "sub_tell ops.3");
    for (id, parsed) in [
        ("sub_tell ops.3", Some(("tell ops", 3))),
        ("sub_a.b.12", Some(("a.b", 12))),
        ("sub_a", None),
        ("sub_a.x", None),
        ("run_a.3", None),
    ] {
        assert_eq!(parse_segment(&id.into()), parsed, "{id}");
        assert_eq!(is_segment(&id.into()), id.starts_with("sub_"), "{id}");
    }
}

/// Spec: X2. A move changes what it names, and nothing else.
#[test]
fn moves_change_what_they_name() {
    let mut moves = Moves::new("tell", "run.failed", 2);
    moves.positions = vec![("run_1".into(), Some(4)), ("run_2".into(), Some(5))];
    let mut subscription = moves.to_subscription();
    assert_eq!((subscription.segment, subscription.cursor), (2, Cursor::start()));
    assert_eq!(subscription.positions, BTreeMap::from([("run_1".into(), 4), ("run_2".into(), 5)]));
    let mut next = Moves::new("tell", "run.*", 3);
    next.positions = vec![("run_1".into(), None), ("run_2".into(), Some(6))];
    next.cursor = Some(Cursor::behind(9, None));
    subscription.take(&next);
    subscription.take(&Moves::new("tell", "run.*", 3));
    assert_eq!((&*subscription.pattern, subscription.segment), ("run.*", 3));
    assert_eq!(subscription.cursor, Cursor::behind(9, None));
    assert_eq!(subscription.positions, BTreeMap::from([("run_2".into(), 6)]));
}

/// Spec: B4. A name that is no scope is replaced by its digest.
#[test]
fn account_of_any_name_has_a_scope() {
    let scope = |name: &str| account_scope("session", name).unwrap().to_string();
    assert_eq!(scope("s-1"), "limit:session:s-1");
    let long = "x".repeat(10_000);
    assert_eq!(scope(&long), format!("limit:session:sha256:{}", text_digest(&long)));
}

/// Spec: D1, O3. Computed with `sha256sum`.
#[test]
fn digest_of_a_task_covers_its_parts() {
    let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    assert_eq!(text_digest("hello"), hello);
    let plain = || Task::text("hello");
    assert_eq!(task_digest(&plain()), hello);
    let mut pictured = plain();
    pictured.images = Arc::from([Image::from_bytes(b"GIF89a").unwrap()]);
    let mut typed = plain();
    typed.output_schema = Some(json!({}));
    let mut digests = [plain(), pictured, typed, plain().with_history()].map(|it| task_digest(&it));
    digests.sort();
    assert!(digests.windows(2).all(|two| two[0] != two[1]), "{digests:?}");
}

/// Spec: J2w. Older versions stored the key itself.
#[test]
fn stored_key_is_its_digest() {
    let key = StartKey::new("a", "mail-7", &Task::text("x"), None, &BTreeMap::new()).unwrap();
    let digest = format!("sha256:{}", text_digest("mail-7"));
    assert_eq!((key.digest(), key.plain()), (digest.clone(), "mail-7"));
    assert_eq!(StartKey::kept_digest("mail-7"), digest);
    assert_eq!(StartKey::kept_digest(&digest), digest);
    assert_eq!(StartKey::kept_since(at(86_400_001)), at(1));
}

/// Spec: T14
#[test]
fn settlement_is_a_verdict() {
    assert_eq!(Settlement::call_happened("ops").verdict(), Verdict::Happened);
    assert_eq!(Settlement::did_not("ops").verdict(), Verdict::DidNot);
}

/// Spec: A1
#[test]
fn approval_is_decided_by_its_people_in_time() {
    let mut asked = ApprovalRequested::new("apr_1", "c1", "pay", json!({}), "h");
    (asked.expires_at, asked.approvers) = (Some(at(10)), ["ops"].into_iter().collect());
    let open = OpenApproval::new("run_1".into(), 2, at(0), asked);
    assert!(open.check("ops", at(9)).is_ok() && !open.is_over(at(9)) && open.is_over(at(10)));
    let code = |by, at| open.check(by, at).unwrap_err().code();
    assert_eq!(
        (code("ops", at(10)), code("intern", at(9))),
        ("approval.expired", "approval.not_approver")
    );
    let endless = ApprovalRequested::new("apr_1", "c1", "pay", json!({}), "h");
    let endless = OpenApproval::new("run_1".into(), 2, at(0), endless);
    assert!(endless.check("anyone", Timestamp::from_millis(i64::MAX)).is_ok());
}

/// Spec: A1
#[test]
fn blank_words_of_a_decision_count_as_none() {
    let denied = Decision::deny("ops", " \n");
    assert_eq!(denied.reason.as_deref(), Some("no reason was given"));
    assert_eq!(Decision::deny("ops", "too dear").reason.as_deref(), Some("too dear"));
    let agreed = Decision::approve("ops").because(" ");
    assert_eq!((agreed.reason.as_deref(), agreed.blank()), (None, None));
    let agreed = agreed.because("fine").because("");
    assert_eq!(agreed.reason.as_deref(), Some("fine"));
    assert_eq!(Decision::approve(" ").blank(), Some("by"));
}

/// Spec: C4. A misspelt parameter is not taken as part of a path.
#[test]
fn store_url_has_only_known_parameters() {
    for (url, is_file) in [
        ("sqlite:a.db?mode=ro", false),
        ("sqlite:a.db?network_fs=2", false),
        ("sqlite:a.db?_x9=1", false),
        ("sqlite:what?.db", true),
        ("sqlite:a?b c=d", true),
        ("sqlite:a?=d", true),
    ] {
        let parsed = url.parse::<StoreUrl>();
        assert_eq!(matches!(parsed, Ok(StoreUrl::Sqlite(_))), is_file, "{url}: {parsed:?}");
    }
    let memory = "sqlite::memory:".parse::<StoreUrl>().unwrap();
    assert_eq!(memory.clone().below(Path::new("/x")), memory);
    assert_eq!(memory.to_string(), "sqlite::memory:");
}

/// Spec: D10. Joiners stay only between letters of a script that needs them.
#[test]
fn harmful_characters_are_escaped_in_json() {
    for (json, escaped) in [
        ("{\"a\":\n\"b\"}", "{\"a\":\n\"b\"}"),
        ("\"\u{7f}\"", "\"\\u007f\""),
        ("\"\u{e0041}\"", "\"\\udb40\\udc41\""),
        ("\"é\"", "\"é\""),
        ("\"é\u{200d}\"", "\"é\\u200d\""),
    ] {
        assert_eq!(escape_json(json), escaped);
    }
    let long = format!("{}\u{202e}", "x".repeat(64));
    assert_eq!(escape_json(&long), format!("{}\\u202e", "x".repeat(64)));
    for (before, c, after, is_needed) in [
        (Some('م'), '\u{200c}', Some('خ'), true),
        (Some('م'), '\u{200d}', Some('a'), false),
        (Some('a'), '\u{200d}', Some('م'), false),
        (Some('م'), '\u{200d}', None, false),
        (Some('م'), '\u{200d}', Some('\u{202e}'), false),
        (Some('م'), '\u{202e}', Some('خ'), false),
    ] {
        assert_eq!(is_joiner_needed(before, c, after), is_needed, "{before:?} {c:?} {after:?}");
    }
}

/// Spec: D4, O3
#[tokio::test]
async fn open_root_is_the_head_of_the_callers() {
    let log = memory();
    let child = |parent: &str| {
        let mut start = started("s");
        start.parent = Some(parent.into());
        start
    };
    let failed = layer0::event::RunFailed::new("a.b", vec![String::new()], <_>::default());
    record(&log, "run_over", [started("over").into(), failed.into()]).await;
    record(&log, "run_a", [child("run_over").into()]).await;
    record(&log, "run_b", [child("run_a").into()]).await;
    record(&log, "run_c", [child("run_b").into()]).await;
    record(&log, "run_x", [child("run_y").into()]).await;
    record(&log, "run_y", [child("run_x").into()]).await;
    let root = async |run: &str| {
        let summary = log.summary(&run.into()).await.unwrap().unwrap();
        open_root(&*log, &summary).await.unwrap().map(|root| root.to_string())
    };
    assert_eq!(root("run_c").await.as_deref(), Some("run_a"), "its caller has ended");
    assert_eq!(root("run_a").await, None);
    assert!(root("run_x").await.is_some(), "a cycle is no endless search");
}
