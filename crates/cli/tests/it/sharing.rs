//! Several agent files that one command serves.

use crate::bench::Bench;

/// Spec: C5. What one file says of the store is not dropped for what another says.
#[test]
fn files_agree_about_their_store() {
    let bench = Bench::new();
    let agent = |name: &str, store: &str| {
        let model = "[model]\nprovider = \"script\"\nscript = \"script.toml\"\n";
        let text = format!(
            "[agent]\nname = \"{name}\"\n{model}[store]\nurl = \"sqlite:x.db\"\n{store}\n\
             [[behavior]]\nname = \"{name}\"\non = \"run.failed\"\nurl = \"http://127.0.0.1:9/\"\n"
        );
        bench.write(&format!("{name}.toml"), &text);
    };
    bench.write("script.toml", "[[model]]\ntext = \"ok\"\n");
    agent("a", "");
    for (key, other) in [
        ("durability", "durability = \"normal\""),
        ("run_retention_days", "run_retention_days = 3"),
        ("error_retention_days", "error_retention_days = 3"),
    ] {
        agent("b", &format!("{key} = 9").replace("durability = 9", "durability = \"full\""));
        agent("c", other);
        let why = format!("b.toml and c.toml have different `{key}`");
        for command in ["mcp", "watch"] {
            bench.run(&[command, "a.toml", "b.toml", "c.toml"]).fails(2, &why);
        }
    }
    // A file without a setting takes it from the others.
    agent("b", "");
    bench.run(&["mcp", "a.toml", "b.toml"]).ok();
}
