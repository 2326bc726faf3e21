//! The command with a PostgreSQL store.

use std::process::Stdio;

use backstop_testkit::PostgresServer;

use crate::bench::Bench;
use crate::durable::serves_a_waiting_run;

/// Returns the URL of a new database; prints a note and returns `None` without a server.
pub(crate) fn database() -> Option<String> {
    let server = PostgresServer::shared()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    Some(runtime.block_on(server.database()))
}

/// Runs statements in a database of [`database`].
pub(crate) fn execute_in(url: &str, statements: &str) {
    let server = PostgresServer::shared().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let name = url.rsplit('/').next().unwrap();
    runtime.block_on(server.execute_in(name, statements));
}

/// Spec: C2, A1, D5, D6, D7, J2
#[test]
fn waiting_run_is_served_by_other_processes() {
    let (Some(one), Some(other)) = (database(), database()) else { return };
    serves_a_waiting_run(&one, &other);
}

/// Spec: D15. The chain of a record is the same wherever it is kept.
#[test]
fn records_move_between_back_ends() {
    let Some(url) = database() else { return };
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    bench.run(&["run", "agent.toml", "--store", "sqlite:a.db"]).ok();
    bench.run(&["copy", "--from", "sqlite:a.db", "--to", &url]).ok();
    bench.run(&["copy", "--from", &url, "--to", "sqlite:b.db"]).ok();
    let export = |store: &str| bench.run(&["export", "last", "--store", store]).ok().out;
    assert_eq!(export("sqlite:a.db"), export(&url));
    assert_eq!(export("sqlite:a.db"), export("sqlite:b.db"));
    bench.run(&["verify", "--all", "--store", &url]).ok();
}

/// Spec: C3, E10. What is wrong with a database is said, with exit code 5, and no password is.
#[test]
fn an_absent_server_is_a_storage_failure() {
    let bench = Bench::new().with("BACKSTOP_STORE", "postgres://me:hunter22@127.0.0.1:1/agents");
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    for command in [&["runs"][..], &["run", "agent.toml"], &["errors", "list"]] {
        let ran =
            bench.run(command).fails(5, "cannot reach the PostgreSQL server at `127.0.0.1:1`");
        assert!(ran.err.contains("is the server running") && !ran.err.contains("hunter22"));
    }
    let ran = bench.run(&["doctor"]).fails(1, "");
    assert!(ran.out.contains("cannot reach") && !ran.out.contains("hunter22"), "{}", ran.out);
    let wrong = Bench::new().with("BACKSTOP_STORE", "postgres://me@localhost:many/agents");
    wrong.run(&["runs"]).fails(2, "invalid URL of a PostgreSQL database");
}

/// Spec: S6, C3, J2. A full disk ends a run with exit code 5 and nothing half written; with room, runs go on.
#[test]
fn a_full_disk_is_a_storage_failure() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let Some(server) = runtime.block_on(PostgresServer::with_small_disk(32)) else { return };
    let run = |statement: &str| runtime.block_on(server.execute_in("little", statement));
    runtime.block_on(server.execute("CREATE DATABASE little TABLESPACE small"));
    let bench = Bench::new().with("BACKSTOP_STORE", &server.url_of("little"));
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    bench.run(&["run", "agent.toml"]).ok();
    run("CREATE TABLE filler (n bigint)");
    // The rows of the failed insert still occupy the file of the table.
    run(
        "DO $$ BEGIN INSERT INTO filler SELECT generate_series(1, 10000000); EXCEPTION WHEN disk_full THEN END $$",
    );
    let line = |n: usize| format!("line {} of {}\n", n * 7_919 % 10_007, n * n % 9_973);
    bench.write("long", &(0..20_000).map(line).collect::<String>());
    let ran = bench.run(&["run", "agent.toml", "--json", "--input", "@long"]).fails(5, "");
    let error = ran.json().remove(0);
    assert_eq!(error["error"]["chain"][1], "no space left for the log", "{error}");
    let ran =
        bench.run(&["run", "agent.toml", "--input", "@long"]).fails(5, "no space left for the log");
    assert!(ran.err.contains("hint: give the disk of the store more space"), "{}", ran.err);
    assert_eq!(bench.run(&["runs", "--json"]).ok().json().len(), 1);
    bench.run(&["verify", "--all"]).ok();
    run("DROP TABLE filler");
    run("CHECKPOINT");
    bench.run(&["run", "agent.toml", "--input", "@long"]).ok();
    bench.run(&["verify", "--all"]).ok();
}

/// Spec: C3, J2. Each thing that keeps a database from being opened is said with a hint and exit code 5.
#[test]
fn what_cannot_be_opened_is_a_storage_failure() {
    let Some(server) = PostgresServer::with_tls() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let new = || runtime.block_on(server.database());
    let name = |url: &str| url.rsplit('/').next().unwrap().to_owned();
    let run_in = |url: &str, sql: &str| runtime.block_on(server.execute_in(&name(url), sql));
    let as_role = |url: &str, role: &str| url.replace("//backstop@", &format!("//{role}@"));
    let run = |sql: &str| runtime.block_on(server.execute(sql));
    run(
        "CREATE ROLE with_password; CREATE ROLE ann LOGIN PASSWORD 'hunter22' IN ROLE with_password",
    );
    run("CREATE ROLE bob LOGIN");
    let made = |url: &str| {
        let bench = Bench::new().with("BACKSTOP_STORE", url);
        bench.agent("[[model]]\ntext = \"hello\"\n", "");
        bench.run(&["run", "agent.toml"]).ok();
    };
    let (empty, newer, foreign, ours) = (new(), new(), new(), new());
    run(&format!("REVOKE CREATE ON DATABASE {} FROM public", name(&empty)));
    made(&newer);
    run_in(&newer, "INSERT INTO backstop.migrations (version) VALUES (9999)");
    run_in(&foreign, "CREATE SCHEMA backstop; CREATE TABLE backstop.things (id int)");
    made(&ours);
    run_in(
        &ours,
        "GRANT USAGE ON SCHEMA backstop TO bob; GRANT SELECT ON backstop.migrations TO bob",
    );
    let root = server.root_certificate().display().to_string();
    let by_tls = |parameters: &str| format!("{ours}?{parameters}");
    for (url, said, hint) in [
        (as_role(&ours, "ann:hunter22-wrong"), "does not let `ann` in", "PGPASSWORD"),
        (as_role(&ours, "ann"), "does not let `ann` in", ".pgpass"),
        (as_role(&empty, "bob"), "user `bob` has not the rights", "docs/postgres.md"),
        (as_role(&ours, "bob"), "user `bob` has not the rights", "docs/postgres.md"),
        (newer, "schema version 9999", "later version"),
        (foreign, "is another program's", "use another database"),
        (server.url_of("none"), "there is no database `none`", "createdb none"),
        (by_tls("sslmode=verify-full"), "UnknownIssuer", "sslrootcert=FILE"),
        (
            by_tls(&format!("sslmode=verify-full&sslrootcert={root}")),
            "not valid for name",
            "by a name",
        ),
    ] {
        let bench = Bench::new().with("BACKSTOP_STORE", &url);
        bench.agent("[[model]]\ntext = \"hello\"\n", "");
        let ran = bench.run(&["run", "agent.toml"]).fails(5, said);
        assert!(ran.err.contains(hint) && !ran.err.contains("hunter22"), "{}", ran.err);
        let doctor = bench.run(&["doctor"]);
        assert!(!format!("{}{}", doctor.out, doctor.err).contains("hunter22"), "{}", doctor.out);
    }
    let misspelt = Bench::new().with("BACKSTOP_STORE", &by_tls("sslmod=verify-full"));
    misspelt.run(&["runs"]).fails(2, "it has a parameter that is not known: \"sslmod\"");
}

/// Spec: C3, J2. The password is taken from the environment or from the password file, and no line of it is said.
#[test]
fn passwords_come_from_outside_the_url() {
    let Some(server) = PostgresServer::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(server.execute(
        "CREATE ROLE with_password; CREATE ROLE ann LOGIN SUPERUSER PASSWORD 'hunter22' IN ROLE with_password",
    ));
    let url = runtime.block_on(server.database()).replace("//backstop@", "//ann@");
    let bench = || {
        let bench = Bench::new().with("BACKSTOP_STORE", &url).with("RUST_LOG", "trace");
        bench.agent("[[model]]\ntext = \"hello\"\n", "");
        bench
    };
    let silent = |ran: crate::bench::Ran| {
        assert!(!format!("{}{}", ran.out, ran.err).contains("hunter22"), "{}{}", ran.out, ran.err);
    };
    silent(bench().with("PGPASSWORD", "hunter22").run(&["run", "agent.toml"]).ok());
    silent(bench().with("PGPASSWORD", "hunter22-no").run(&["run", "agent.toml"]).fails(5, "in"));
    let in_file = |name: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        let bench = bench().with("PGPASSFILE", "own.pgpass");
        bench.write(name, "broken hunter22\n*:*:*:ann:hunter22\n");
        let path = bench.path().join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        bench
    };
    silent(in_file("own.pgpass", 0o600).run(&["run", "agent.toml"]).ok());
    silent(in_file("own.pgpass", 0o644).run(&["run", "agent.toml"]).fails(5, "its owner alone"));
    silent(in_file("other.pgpass", 0o600).run(&["run", "agent.toml"]).fails(5, ".pgpass"));
}

/// Spec: W8, J2
#[test]
fn doctor_says_what_the_server_keeps() {
    let Some(url) = database() else { return };
    let bench = Bench::new().with("BACKSTOP_STORE", &url);
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    let before = bench.run(&["doctor"]).ok();
    assert!(before.out.contains("is made by the first run"), "{}", before.out);
    assert!(before.out.contains("each connection has a process of the server"), "{}", before.out);
    assert!(before.out.contains("uses up to 12 connections"), "{}", before.out);
    bench.run(&["run", "agent.toml"]).ok();
    let after = bench.run(&["doctor"]).ok().out;
    assert!(after.contains("synchronous_commit is on"), "{after}");
    assert!(after.contains("each connection has a process of the server"), "{after}");
    assert!(after.contains("a pooler in session mode holds them"), "{after}");
}

/// Spec: W8, J2. Behind a proxy that pools transactions runs work, and `doctor` says what is lost.
#[test]
fn doctor_says_what_a_proxy_costs() {
    let Some(server) = PostgresServer::shared() else { return };
    let Some(pooler) = server.pooler() else { return };
    let Some(url) = database() else { return };
    let bench = Bench::new().with("BACKSTOP_STORE", &pooler.through(&url));
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    let before = bench.run(&["doctor"]).ok().out;
    assert!(before.contains("known by its lease alone"), "also without a schema: {before}");
    bench.run(&["run", "agent.toml"]).ok();
    let said = bench.run(&["doctor"]).ok().out;
    assert!(said.contains("known by its lease alone, after 15 s"), "{said}");
    assert_eq!(bench.run(&["runs", "--json"]).ok().json().len(), 1);
    bench.run(&["verify", "--all"]).ok();
}

/// Spec: D5, J2. Killed in the middle of a tool, a run is gone on with at once, and the tool is not run again.
#[test]
fn a_killed_run_is_gone_on_with() {
    let Some(url) = database() else { return };
    let bench = Bench::new().with("BACKSTOP_STORE", &url);
    let script = "[[model]]\ntool_calls = [{ id = \"c1\", name = \"work\", arguments = {} }]\n\
        [[model]]\ntext = \"it was interrupted\"\n";
    let tool = "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\nname = \"work\"\n\
        description = \"d\"\ncommand = [\"sh\", \"-c\", \"echo ran >> runs.txt; sleep 60\"]\n";
    bench.agent(script, tool);
    let mut command = bench.command(&["run", "agent.toml"]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let noted = bench.path().join("runs.txt");
    for _ in 0..3_000 {
        if noted.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let resumed = bench.run(&["resume", "last", "--json"]).ok().json().remove(0);
    assert_eq!(resumed["output"], "it was interrupted");
    let answers = bench.run(&["trace", "last"]).ok().out;
    assert!(answers.contains("tool.interrupted"), "{answers}");
    assert_eq!(std::fs::read_to_string(noted).unwrap(), "ran\n");
}
