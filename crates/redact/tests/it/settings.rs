//! Settings with names of secrets.

use backstop_redact::Redactor;
use serde_json::{Value, json};

#[track_caller]
fn check(text: &str, expected: &str) {
    let redactor = Redactor::new();
    assert_eq!(redactor.redact(text), expected, "{text}");
    assert_eq!(redactor.redact(expected), expected, "a second time");
    if serde_json::from_str::<Value>(text).is_ok() {
        assert!(serde_json::from_str::<Value>(expected).is_ok(), "still JSON");
    }
}

/// Spec: S9
#[test]
fn bare_values_of_settings_go() {
    check("api_key=abcdef123456&x=1", "api_key=[redacted]&x=1");
    check("DB_PASSWORD=hunter2hunter2", "DB_PASSWORD=[redacted]");
    check("OPENAI_API_KEY=abcdef0123", "OPENAI_API_KEY=[redacted]");
    check("AWS_SECRET_ACCESS_KEY=wJalrXUtn/x", "AWS_SECRET_ACCESS_KEY=[redacted]");
    check("AWS_SECRET_ACCESS_KEY=/JalrXUtn/x", "AWS_SECRET_ACCESS_KEY=[redacted]");
    check("export MYAPP_TOKEN=abc123def456", "export MYAPP_TOKEN=[redacted]");
    check("PGPASSWORD=hunter22 psql", "PGPASSWORD=[redacted] psql");
    check("MYSQL_PWD=hunter22 mysql", "MYSQL_PWD=[redacted] mysql");
    check("passwd: hunter22", "passwd: [redacted]");
    check("ssh.passphrase=opensesame", "ssh.passphrase=[redacted]");
    check("app_secret: abcdef1, x", "app_secret: [redacted], x");
    check("Server=a;Uid=b;Pwd=hunter;Port=1", "Server=a;Uid=b;Pwd=[redacted];Port=1");
    check("DB_PASS=hunter", "DB_PASS=[redacted]");
    check("DB_PASS=a1(b)c", "DB_PASS=[redacted]");
    check("SMTP_PASS = hunter22", "SMTP_PASS = [redacted]");
    check("token=abcdef1", "token=[redacted]");
    check("?token=abcdefgh&a=b", "?token=[redacted]&a=b");
    check("secret=opensesame", "secret=[redacted]");
    check("secret: abcd1234", "secret: [redacted]");
    check("password: hunter\nuser: a", "password: [redacted]\nuser: a");
    check("X-Auth-Token: abc123", "X-Auth-Token: [redacted]");
    check("signing_key=abcdef", "signing_key=[redacted]");
    check("PASSWORD_1=hunter", "PASSWORD_1=[redacted]");
    check("connect(user=a, password=hunter22)", "connect(user=a, password=[redacted])");
    check(r"password=DOM\zed22 x", "password=[redacted] x");
    check("run --api-key abc123 --verbose", "run --api-key [redacted] --verbose");
    check("run --token=abc123", "run --token=[redacted]");
    check(r#"["run", "--password", "hunter"]"#, r#"["run", "--password", "[redacted]"]"#);
    check("CREATE USER a PASSWORD 'hunter22'", "CREATE USER a PASSWORD '[redacted]'");
    check("CREATE USER a IDENTIFIED BY 'hunter22'", "CREATE USER a IDENTIFIED BY '[redacted]'");
}

/// Spec: S9
#[test]
fn quoted_values_go_with_their_escapes() {
    check(r#"{"password": "hunter22", "a": 1}"#, r#"{"password": "[redacted]", "a": 1}"#);
    check(r#"{"token": "abcdefgh"}"#, r#"{"token": "[redacted]"}"#);
    check(r#"{"token":"abcdef","a":"b"}"#, r#"{"token":"[redacted]","a":"b"}"#);
    check(r#"{"refreshToken": "abcdef1"}"#, r#"{"refreshToken": "[redacted]"}"#);
    check(r#"password="my dog is called rex""#, r#"password="[redacted]""#);
    check(r#"{"password": "ab\"cd\\", "a": 1}"#, r#"{"password": "[redacted]", "a": 1}"#);
    check(r#"{"password": "ab\ncd", "a": 1}"#, r#"{"password": "[redacted]", "a": 1}"#);
    check(r"{'password': 'ab\'cd', 'a': 1}", "{'password': '[redacted]', 'a': 1}");
    check(r#"{'password': 'ab"cd', 'a': 1}"#, "{'password': '[redacted]', 'a': 1}");
    check(r#"{"m": "{\"api_key\": \"abcdef1234\"}"}"#, r#"{"m": "{\"api_key\": \"[redacted]\"}"}"#);
    check(
        r#"{"m": "{\"password\": \"ab\\\"cd\\\\\", \"a\": 1}"}"#,
        r#"{"m": "{\"password\": \"[redacted]\", \"a\": 1}"}"#,
    );
    check(
        r#"{"m": "{\"n\": \"{\\\"password\\\": \\\"ab\\\\\\\"cd\\\"}\"}"}"#,
        r#"{"m": "{\"n\": \"{\\\"password\\\": \\\"[redacted]\\\"}\"}"}"#,
    );
    check(r#"{"m": "password='abcd", "a": 1}"#, r#"{"m": "password='[redacted]", "a": 1}"#);
    check(r#"{"m": "password=\"abcd", "a": 1}"#, r#"{"m": "password=\"[redacted]", "a": 1}"#);
    check(r#"let password: &str = "hunter22";"#, r#"let password: &str = "[redacted]";"#);
    check(r#"os.environ["API_TOKEN"] = "abc123""#, r#"os.environ["API_TOKEN"] = "[redacted]""#);
    check(r#"{:password=>"hunter22"}"#, r#"{:password=>"[redacted]"}"#);
}

/// Spec: S9. A value is judged by its first 256 bytes.
#[test]
fn long_values_of_settings_go() {
    let long = "aB3-".repeat(300);
    check(&format!("token={long} x"), "token=[redacted] x");
    check(&format!("password='{long} must be'"), "password='[redacted]'");
    check(
        &format!("password='{} must be {long}'", "a ".repeat(20)),
        &format!("password='{} must be {long}'", "a ".repeat(20)),
    );
    check(r"token=\'token=\'token=\'hunter22", r"token=\'[redacted]");
    check("token=\\'a b\\' password=\\'hunter22\\' x", "token=\\'a b\\' password=\\'[redacted]");
}

/// Spec: S9. A bare number becomes a text.
#[test]
fn numbers_in_json_become_text() {
    check(r#"{"error":"bad","password":123456789}"#, r#"{"error":"bad","password":"[redacted]"}"#);
    check(r#"{"password" : 123456789}"#, r#"{"password" : "[redacted]"}"#);
    check(r#"{"m": "{\"password\": 123456789}"}"#, r#"{"m": "{\"password\": \"[redacted]\"}"}"#);
}

/// Spec: D2, S9
#[test]
fn settings_under_secret_names_go_at_any_depth() {
    let mut value = json!({
        "model": { "extra_body": {
            "api_key": "abc", "deep": [{ "clientSecret": { "a": ["b", 5] } }], "max_tokens": 5,
            "headers": { "Authorization": "x y", "x-api-key": "z" },
            "list": [{ "name": "API_TOKEN", "value": "abc" }, { "name": "HOME", "value": "abc" }],
        } },
        "tools": [{
            "command": ["curl", "--api-key", "abc", "-H", "Authorization: Bearer abc", "--token=abcdef1"],
            "env": ["API_TOKEN"],
            "schema": { "properties": { "password": { "type": "string" } }, "required": ["password"] },
        }],
        "api_key_env": "SOME_KEY", "password": "env:PASSWORD", "token": true,
    });
    assert!(Redactor::new().redact_settings(&mut value));
    let expected = json!({
        "model": { "extra_body": {
            "api_key": "[redacted]",
            "deep": [{ "clientSecret": { "a": ["[redacted]", "[redacted]"] } }], "max_tokens": 5,
            "headers": { "Authorization": "[redacted]", "x-api-key": "[redacted]" },
            "list": [{ "name": "API_TOKEN", "value": "[redacted]" }, { "name": "HOME", "value": "abc" }],
        } },
        "tools": [{
            "command": [
                "curl", "--api-key", "[redacted]", "-H", "Authorization: Bearer [redacted]",
                "--token=[redacted]",
            ],
            "env": ["API_TOKEN"],
            "schema": { "properties": { "password": { "type": "string" } }, "required": ["password"] },
        }],
        "api_key_env": "SOME_KEY", "password": "env:PASSWORD", "token": true,
    });
    assert_eq!(value, expected);
    assert!(!Redactor::new().redact_settings(&mut json!({ "a": ["--verbose", "x"] })));
}
