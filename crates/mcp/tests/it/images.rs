//! Images in the results of calls.

use backstop_redact::Redactor;
use backstop_tool::{Arguments, MAX_SHOWN_IMAGE_BYTES, ToolContext};
use layer0::message::Image;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::server::Script;
use crate::support::{Faulty, Way, checks, context, tool};

pub(crate) fn trials() -> Vec<Trial> {
    checks![over Way::WHOLE: images_are_shown, what_cannot_be_shown_is_said]
}

fn gif(more: &[u8]) -> Image {
    Image::from_bytes(&[b"GIF89a", more].concat()).unwrap()
}

fn block(image: &Image) -> Value {
    json!({"type": "image", "data": *image.data, "mimeType": *image.media_type})
}

/// Calls a tool whose server returns this result; returns the text and the shown images.
async fn shown(way: Way, result: Value, context: ToolContext) -> (String, Vec<Image>) {
    let script = Script { results: vec![result], ..Script::faulty("") };
    let (_faulty, server) = Faulty::new(way, script);
    let client = server.connect().await.unwrap();
    let output = tool(&client, "act").call(&Arguments::from(json!({})), &context).await;
    let text = match output {
        Ok(output) => output.display_text().into_owned(),
        Err(error) => backstop_tool::failed_text("act", &error),
    };
    (text, context.images.so_far().to_vec())
}

/// Spec: Q8
async fn images_are_shown(way: Way) {
    let (one, two) = (gif(b"one"), gif(b"two"));
    let words = json!({"type": "text", "text": "before"});
    let content = json!([words, block(&one), block(&two)]);
    let (text, images) = shown(way, json!({"content": content}), context()).await;
    assert_eq!(text, "before\n[image: image/gif, 9 bytes]\n[image: image/gif, 9 bytes]");
    assert_eq!(images, [one.clone(), two]);
    let (text, images) =
        shown(way, json!({"content": [block(&one)], "structuredContent": {"n": 1}}), context())
            .await;
    assert_eq!((text.as_str(), images.len()), ("[image: image/gif, 9 bytes]\n{\"n\":1}", 1));
    let (text, images) =
        shown(way, json!({"content": [block(&one)], "isError": true}), context()).await;
    assert_eq!((text.as_str(), images.len()), ("[image: image/gif, 9 bytes]", 0));
}

/// Spec: Q8, S9
async fn what_cannot_be_shown_is_said(way: Way) {
    let given = match way {
        Way::Stdio { .. } => b"hunter2-hunter2",
        Way::Http { .. } => b"s3cret-s3cret..",
    };
    let mut context = context();
    context.redactor = Redactor::new().with_secret("held-secret-key");
    let large = gif(&vec![0; MAX_SHOWN_IMAGE_BYTES]);
    let bytes = MAX_SHOWN_IMAGE_BYTES + 6;
    let content = json!([
        {"type": "image", "data": "AAAA", "mimeType": "image/tiff"},
        {"type": "image", "data": "?", "mimeType": "image/png"},
        block(&large),
        block(&gif(given)),
        block(&gif(b"held-secret-key")),
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
    ]);
    let (text, images) = shown(way, json!({"content": content}), context).await;
    let lines = [
        "[image: image/tiff, 3 bytes; not shown: unusable image: not a PNG, JPEG, GIF or WebP image]",
        "[image: image/png, 0 bytes; not shown: unusable image: not base64]",
        &format!("[image: image/gif, {bytes} bytes; not shown: an image of more than 3 MiB]"),
        "[image: image/gif, 21 bytes; not shown: it holds a secret]",
        "[image: image/gif, 21 bytes; not shown: it holds a secret]",
        "[audio: audio/wav, 3 bytes]",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    assert!(images.is_empty());
}
