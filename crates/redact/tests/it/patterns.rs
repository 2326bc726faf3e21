//! Credentials in headers, URLs and queries, and private keys.

use backstop_redact::Redactor;

use crate::{alnum, hex};

#[track_caller]
fn check(text: &str, expected: &str) {
    let redactor = Redactor::new();
    assert_eq!(redactor.redact(text), expected, "{text}");
    assert_eq!(redactor.redact(expected), expected, "a second time");
}

/// Spec: S9
#[test]
fn the_usual_shapes_are_taken_out() {
    check("key sk-ant-api03-abcdefghijklmnop used", "key [redacted] used");
    check("Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer [redacted]");
    check("postgres://app:s3cret@db:5432/x", "postgres://app:[redacted]@db:5432/x");
    check("Authorization: Token abcdef0123456789", "Authorization: Token [redacted]");
    check("postgres://app:p@ss@db/x", "postgres://app:[redacted]@db/x");
    check(r#"{"m": "key:\nsk-abcdefghijklmnop"}"#, r#"{"m": "key:\n[redacted]"}"#);
    check(r#"{"m": "\r\nBearer abcdefghijklmnop"}"#, r#"{"m": "\r\nBearer [redacted]"}"#);
}

/// Spec: S9
#[test]
fn headers_lose_their_credentials() {
    check("Authorization: Bearer abc", "Authorization: Bearer [redacted]");
    check("authorization:bearer s3cr3t, next", "authorization:bearer [redacted], next");
    check("Bearer abc123 was refused", "Bearer [redacted] was refused");
    check("Proxy-Authorization: Basic dXNlcjpwYXNz", "Proxy-Authorization: Basic [redacted]");
    check("sent Basic dXNlcjpwYXNz", "sent Basic [redacted]");
    check("Authorization: abc123def456", "Authorization: [redacted]");
    check(r#"{"Authorization": "Bearer abc"}"#, r#"{"Authorization": "Bearer [redacted]"}"#);
    check(r#"["Authorization","Bearer abc"]"#, r#"["Authorization","Bearer [redacted]"]"#);
    check(
        r#"{"m": "{\"Authorization\": \"Bearer abc\"}"}"#,
        r#"{"m": "{\"Authorization\": \"Bearer [redacted]\"}"}"#,
    );
    check("-H 'Authorization: Bearer abc'", "-H 'Authorization: Bearer [redacted]'");
    check("X-Api-Key: abc123", "X-Api-Key: [redacted]");
    check("Ocp-Apim-Subscription-Key: abc123", "Ocp-Apim-Subscription-Key: [redacted]");
    check(
        "Authorization: AWS4-HMAC-SHA256 Credential=x/y, Signature=abc\nHost: a",
        "Authorization: AWS4-HMAC-SHA256 [redacted]\nHost: a",
    );
    check(
        r#"{"m": "Authorization: Digest username=\"a\", response=\"b\"", "n": 1}"#,
        r#"{"m": "Authorization: Digest [redacted]", "n": 1}"#,
    );
    check(
        r#"Authorization: Digest username="a", response="b""#,
        "Authorization: Digest [redacted]",
    );
    check("Cookie: session=abc; theme=dark\nHost: a", "Cookie: session=[redacted]\nHost: a");
    check("Set-Cookie: id=abc; HttpOnly", "Set-Cookie: id=[redacted]");
    check(r#"{"cookie": "sid=abc"}"#, r#"{"cookie": "sid=[redacted]"}"#);
    check("curl --cookie sid=abc http://a", "curl --cookie sid=[redacted] http://a");
}

/// Spec: S9
#[test]
fn urls_lose_their_credentials() {
    check("https://ops:hunter22@db/ failed", "https://ops:[redacted]@db/ failed");
    check("redis://:hunter22@cache:6379", "redis://:[redacted]@cache:6379");
    check(r#""https:\/\/ops:hunter22@db\/x""#, r#""https:\/\/ops:[redacted]@db\/x""#);
    let token = alnum(40);
    check(&format!("https://{token}@git.example/x.git"), "https://[redacted]@git.example/x.git");
    check("https://abc123@git.example/x", "https://[redacted]@git.example/x");
    check(&format!("https://{token}:x-oauth-basic@a/b"), "https://[redacted]@a/b");
    check(&format!("https://{token}:@a/b"), "https://[redacted]@a/b");
    check("root:hunter22@tcp(127.0.0.1:3306)/x", "root:[redacted]@tcp(127.0.0.1:3306)/x");
    check("app:hunter22@db.example:5432/x", "app:[redacted]@db.example:5432/x");
    check("curl -u ops:hunter22 a", "curl -u ops:[redacted] a");
    let (account, sas) = (alnum(86), alnum(40));
    check(
        &format!("AccountName=a;AccountKey={account}==;End=b"),
        "AccountName=a;AccountKey=[redacted];End=b",
    );
    check(
        &format!("https://a.blob/b?sv=1&sig={sas}%3D&se=2"),
        "https://a.blob/b?sv=1&sig=[redacted]&se=2",
    );
    check(&format!("GET /v1/models?key={token}&a=1"), "GET /v1/models?key=[redacted]&a=1");
    check(&format!("?X-Amz-Signature={}", hex(64)), "?X-Amz-Signature=[redacted]");
    let hook = format!("T{}/B{}/{}", alnum(8), alnum(8), alnum(24));
    check(
        &format!("POST https://hooks.slack.com/services/{hook} failed"),
        "POST https://hooks.slack.com/services/[redacted] failed",
    );
    check(
        &format!("https://discord.com/api/webhooks/123456789012/{}", alnum(68)),
        "https://discord.com/api/webhooks/123456789012/[redacted]",
    );
}

/// Spec: S9
#[test]
fn private_keys_go_whole() {
    for kind in ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "] {
        let (begin, end) = (
            format!("-----BEGIN {kind}PRIVATE KEY-----"),
            format!("-----END {kind}PRIVATE KEY-----"),
        );
        check(&format!("{begin}\nMIIE\n{end} after"), &format!("{begin}[redacted] after"));
        check(&format!("{begin}\nMIIE"), &format!("{begin}[redacted]"));
        check(
            &format!(r#"{{"m": "{begin}\nMIIE\n{end}\n", "n": 1}}"#),
            &format!(r#"{{"m": "{begin}[redacted]\n", "n": 1}}"#),
        );
        check(
            &format!(r#"{{"m": "{begin}\nMIIE", "n": 1}}"#),
            &format!(r#"{{"m": "{begin}[redacted]", "n": 1}}"#),
        );
        check(
            &format!(r#"{{"m": "{{\"k\": \"{begin}\\nMIIE\"}}", "n": 1}}"#),
            &format!(r#"{{"m": "{{\"k\": \"{begin}[redacted]\"}}", "n": 1}}"#),
        );
    }
    let (begin, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
    check(
        &format!(r#"["{begin}", "MIIE", "{end}", "a"]"#),
        &format!(r#"["{begin}", "[redacted]", "[redacted]", "a"]"#),
    );
    let block = "PGP PRIVATE KEY BLOCK-----";
    check(
        &format!("-----BEGIN {block}\n\nlQVYBG\n=abcd\n-----END {block}\n"),
        &format!("-----BEGIN {block}[redacted]\n"),
    );
    check("Private-Lines: 2\nAAAA\nBBBB\nPrivate-MAC: c", "Private-Lines: 2[redacted] c");
}

/// Spec: S9
#[test]
fn patterns_of_the_user_are_found_too() {
    let pattern = regex::Regex::new("(?P<keep>customer )CUST-[0-9]{8}").unwrap();
    let redactor = Redactor::new().with_pattern(pattern);
    assert_eq!(redactor.redact("customer CUST-12345678"), "customer [redacted]");
}

/// Spec: S3, S9. Bytes that are no text are searched before they are encoded.
#[test]
fn bytes_that_are_no_text_are_searched() {
    let redactor = Redactor::new().with_secret("held-secret-key");
    for (bytes, expected) in [
        (&b"\xff held-secret-key \xfe"[..], &b"\xff [redacted] \xfe"[..]),
        (b"\xffheld-secret-key\xc3", b"\xff[redacted]\xc3"),
        (b"PGPASSWORD=hun\xffter22 \x80", b"PGPASSWORD=[redacted] \x80"),
        (b"password='hun\xff\\'ter' \x80", b"password='[redacted]' \x80"),
        (b"nothing \xff here \xf0\x9f", b"nothing \xff here \xf0\x9f"),
    ] {
        assert_eq!(&*redactor.redact_bytes(bytes), expected);
    }
}
