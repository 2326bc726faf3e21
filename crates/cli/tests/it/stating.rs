//! `backstop state`: values that outlive runs.

use serde_json::{Value, json};

use crate::bench::{Bench, Ran};

fn bench() -> Bench {
    Bench::new().with("BACKSTOP_STORE", "sqlite:x.db")
}

fn refused(ran: &Ran, code: &str) {
    assert_eq!((ran.code, &*ran.out), (1, ""), "{}", ran.err);
    match serde_json::from_str::<Value>(&ran.err) {
        Ok(error) => assert_eq!((&error["code"], &error["exit"]), (&json!(code), &json!(1))),
        Err(_) => {
            assert!(ran.err.contains(&format!("error: {code}: ")), "{}", ran.err);
            assert!(ran.err.contains("  hint: "), "{}", ran.err);
        }
    }
}

/// Spec: K1, C2
#[test]
fn values_are_set_listed_and_removed() {
    let bench = bench();
    let said = bench.run(&["state", "list"]).ok();
    assert_eq!((&*said.out, &*said.err), ("", "no values\n"));
    for (key, value) in [("a/1", "{\"n\": 1.5}"), ("a/2", "\"two\""), ("b", "-3")] {
        bench.run(&["state", "set", key, value]).ok();
    }
    assert_eq!(bench.run(&["state", "get", "a/1"]).ok().out, "{\"n\":1.5}\n");
    let listed = bench.run(&["state", "list", "a/", "--json"]).ok().json();
    let keys: Vec<_> = listed.iter().map(|it| (&it["key"], &it["value"])).collect();
    assert_eq!(keys, [(&json!("a/1"), &json!({ "n": 1.5 })), (&json!("a/2"), &json!("two"))]);
    let table = bench.run(&["state", "list", "--limit", "1", "--after", "a/2"]).ok().out;
    assert!(table.contains('b') && !table.contains("a/"), "{table}");
    bench.run(&["state", "rm", "b"]).ok();
    refused(&bench.run(&["state", "get", "b"]), "state.not_found");
    refused(&bench.run(&["state", "rm", "b"]), "state.not_found");
}

/// Spec: K1, C2. A write that expects something else is refused, and says which version there is.
#[test]
fn write_that_expects_otherwise_is_refused() {
    let bench = bench();
    let set = |value: &str, expect: &str| {
        bench.run(&["state", "set", "k", value, "--expect", expect, "--json"])
    };
    let first = set("1", "absent").ok().json()[0]["version"].to_string();
    refused(&set("2", "absent"), "state.conflict");
    let next = set("2", &first).ok().json()[0]["version"].to_string();
    let late = bench.run(&["state", "set", "k", "3", "--expect", &first]);
    refused(&late, "state.conflict");
    assert!(late.err.contains(&format!("has version {next}")), "{}", late.err);
    refused(&bench.run(&["state", "rm", "k", "--expect", &first]), "state.conflict");
    assert_eq!(bench.run(&["state", "get", "k"]).ok().out, "2\n");
}

/// Spec: K1, P12. No value passes through 64-bit numbers on its way into the store or out of it.
#[test]
fn stored_values_keep_their_text() {
    let bench = bench();
    let digits = "1234567890".repeat(4);
    let deep = "[".repeat(99) + "1.10" + &"]".repeat(99);
    let last_one = (r#"{"b":1,"a":1.10,"b":2.0}"#, r#"{"a":1.10,"b":2.0}"#);
    let control = r#""\u0000\u001b[31m\u202e""#;
    for (given, stored) in [
        ("1.10", "1.10"),
        ("-0", "-0"),
        ("1E5", "1E5"),
        (&*digits, &*digits),
        (&*deep, &*deep),
        last_one,
        (control, control),
    ] {
        bench.run(&["state", "set", "k", given]).ok();
        assert_eq!(bench.run(&["state", "get", "k"]).ok().out, format!("{stored}\n"));
        let object = bench.run(&["state", "get", "k", "--json"]).ok().out;
        assert!(object.contains(&format!(r#""value":{stored},"#)), "{object}");
        let listed = bench.run(&["state", "list", "--json"]).ok().out;
        assert!(listed.contains(&format!(r#""value":{stored},"#)), "{listed}");
        bench.run(&["state", "list"]).ok();
    }
    let ran = bench.run(&["state", "set", "k", "1e400"]).fails(2, "number out of range");
    assert!(ran.err.contains("it cannot be stored"), "{}", ran.err);
}

/// Spec: K1, C2. Nothing is wrong with the store.
#[test]
fn deep_value_is_refused_as_others_are() {
    let bench = bench();
    let deep = format!("{}1{}", "[".repeat(120), "]".repeat(120));
    refused(&bench.run(&["state", "set", "k", &deep]), "state.serialization");
    refused(&bench.run(&["state", "get", "k"]), "state.not_found");
}

/// Spec: K1, C2. Each scope has keys of its own.
#[test]
fn scopes_are_apart() {
    let bench = bench();
    for scope in ["global", "session:s-1", "agent:clerk", "run:run_1", "tenant:acme"] {
        let value = format!("\"{scope}\"");
        bench.run(&["state", "set", "k", &value, "--scope", scope]).ok();
    }
    let tenant = bench.run(&["state", "get", "k", "--scope", "tenant:acme"]).ok();
    assert_eq!(tenant.out, "\"tenant:acme\"\n");
    bench.agent("[[model]]\ntext = \"ok\"\n", "");
    bench.run(&["run", "agent.toml", "--session", "s-1"]).ok();
    let forgotten = bench.run(&["sessions", "forget", "s-1", "--json"]).ok().json();
    assert_eq!(forgotten[0]["state"], 1);
    refused(&bench.run(&["state", "get", "k", "--scope", "session:s-1"]), "state.not_found");
    bench.run(&["state", "get", "k"]).ok();
}

/// Spec: K1, C2
#[test]
fn mistakes_are_named() {
    let bench = bench();
    for (args, said) in [
        (["state", "set", "k", "text", "--scope=global"], "a text needs its quotes"),
        (["state", "set", "k", "1", "--scope=x"], "is no scope"),
        (["state", "set", "k", "1", "--expect=none"], "a whole number, or `absent`"),
        (["state", "set", "", "1", "--scope=global"], "must not be empty"),
    ] {
        let ran = bench.run(&args);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains(said), "{}", ran.err);
    }
    let long = "x".repeat(257);
    refused(&bench.run(&["state", "set", &long, "1"]), "state.invalid_key");
    let file = bench.path().join("none.db");
    let url = format!("sqlite:{}", file.display());
    assert_eq!(bench.run(&["state", "get", "k", "--store", &url]).code, 5);
}
