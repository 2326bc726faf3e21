//! A process that holds every kind of secret, and is told each of them by its tools, servers and model.

use std::os::unix::fs::PermissionsExt as _;

use backstop_provider::{ScriptedAnswer, ScriptedToolCall};
use backstop_testkit::{Loopback, Reply, Request, ScriptedEndpoint};
use serde_json::{Value, json};

use super::secrets::{Canary, Known};
use crate::bench::Bench;

/// Folder of what is given to the command; all other files are its own.
pub(super) const GIVEN: &str = "given";
/// Number of runs for which the model has answers.
const RUNS: usize = 8;

/// Secrets in variables of the process, by the variable. Others are in files, commands, URLs and answers.
const VARIABLES: [(&str, &str); 11] = [
    ("MODEL_KEY", "model-key-value"),
    ("FALLBACK_KEY", "fallback-key-value"),
    ("MODEL_HEADER", "env-header-of-model"),
    ("PGPASSWORD", "pgpassword-value"),
    ("BACKSTOP_TOKEN", "token-value"),
    ("BACKSTOP_LOG_KEY", "log-key-value"),
    ("TOOL_API_KEY", "tool-key-value"),
    ("OURS_API_KEY", "program-key-of-mcp"),
    ("WEB_HEADER", "web-header-of-mcp"),
    ("CLIENT_SECRET", "client-secret-of-mcp"),
    ("HOOK_HEADER", "hook-header-value"),
];
/// Secrets in files below [`GIVEN`].
const FILES: [(&str, &str, Known); 5] = [
    ("header.txt", "filed-header-of-model", Known::File),
    ("command.txt", "printed-header-of-model", Known::Agent),
    ("walls.txt", "walls-credential", Known::Tool),
    ("ours.txt", "ours-credential", Known::File),
    ("token", "file-token-value", Known::Clients),
];

/// A folder with an agent, and the servers of the agent.
pub(super) struct World {
    pub(super) bench: Bench,
    pub(super) store: String,
    pub(super) canaries: Vec<Canary>,
    _servers: [Loopback; 2],
    _model: ScriptedEndpoint,
}

impl World {
    /// Prepares a folder for a process with this store, whose URL gets a password if it has a user.
    pub(super) fn new(store: &str) -> Self {
        let mut canaries: Vec<Canary> =
            VARIABLES.iter().map(|(_, name)| Canary::new(name)).collect();
        canaries.extend(FILES.iter().map(|(_, name, known)| Canary::new(name).known(*known)));
        let signing = Canary::encoded("signing-key-value");
        let [password, of_file, pgpass, proxy, literal, oauth] = [
            "store-password",
            "named-store-password",
            "pgpass-password",
            "proxy-password",
            "literal-header",
            "oauth-token",
        ]
        .map(Canary::new);
        let encoded = |canary: &Canary| -> String {
            url::form_urlencoded::byte_serialize(canary.text.as_bytes()).collect()
        };
        let store = store.replace("//backstop@", &format!("//backstop:{}@", encoded(&password)));
        let mut bench = Bench::new()
            .with("BACKSTOP_STORE", &store)
            .with("BACKSTOP_LOG", "trace")
            .with("PGPASSFILE", &format!("{GIVEN}/pgpass"))
            .with("HOOK_KEY", &format!("whsec_{}", signing.text))
            .with("HTTPS_PROXY", &format!("http://app:{}@127.0.0.1:9", encoded(&proxy)));
        for (variable, name) in VARIABLES {
            let is_bearer = variable.ends_with("HEADER");
            let before = if is_bearer { "Bearer " } else { "" };
            bench = bench.with(variable, &format!("{before}{}", Canary::new(name).text));
        }
        std::fs::create_dir(bench.path().join(GIVEN)).unwrap();
        let give = |file: &str, text: &str| bench.write(&format!("{GIVEN}/{file}"), text);
        for (file, name, _) in FILES {
            give(file, &Canary::new(name).text);
        }
        let escaped = pgpass.text.replace('\\', "\\\\").replace(':', "\\:");
        give("pgpass", &format!("*:*:*:backstop:{escaped}\n"));
        let owner = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(bench.path().join(GIVEN).join("pgpass"), owner).unwrap();

        let is_shared = store.starts_with("postgres");
        let file_store = format!("postgres://app:{}@127.0.0.1:1/x", encoded(&of_file));
        let literal_header = literal.text.clone();
        let oauth = oauth.known(Known::Agent);
        canaries.extend([signing, of_file, pgpass, proxy, literal, oauth.clone()]);
        canaries.extend(Some(password).filter(|_| is_shared));
        give("server.sh", PROGRAM);
        let (before, leaks) = (leaks(&canaries, Known::Agent), leaks(&canaries, Known::Tool));
        let model = model(&leaks);
        let web = web(oauth.text, before, leaks.clone());
        let hook = Loopback::serving(move |_| Reply::new(422, "text/plain", leaks.clone()));
        let file = agent(&model.base_url(), &web.url(), &hook.url(), &file_store, &literal_header);
        bench.write("agent.toml", &file);
        Self { bench, store, canaries, _servers: [web, hook], _model: model }
    }

    /// Returns the secrets that a process holds by then.
    pub(super) fn held(&self, known: Known) -> impl Iterator<Item = &Canary> {
        self.canaries.iter().filter(move |canary| canary.known <= known)
    }

    /// Returns every form of the secrets that a process holds by then.
    pub(super) fn leaks(&self, known: Known) -> String {
        leaks(&self.canaries, known)
    }

    /// Gives these to the programs of tools.
    pub(super) fn leak(&self, known: Known) {
        let leaks = self.leaks(known);
        self.bench.write(&format!("{GIVEN}/leaks.txt"), &leaks);
        self.bench.write(&format!("{GIVEN}/leaks.json"), &json!(leaks).to_string());
    }

    /// Returns an `--input` with these.
    pub(super) fn input(&self, known: Known) -> String {
        self.bench.write(&format!("{GIVEN}/input.txt"), &self.leaks(known));
        format!("@{GIVEN}/input.txt")
    }
}

fn leaks(canaries: &[Canary], known: Known) -> String {
    let held = canaries.iter().filter(|canary| canary.known <= known);
    held.flat_map(Canary::forms).map(|form| format!("it is {form} !\n")).collect()
}

/// A model that fetches a credential first, then repeats every secret in its calls and in its answers.
fn model(leaks: &str) -> ScriptedEndpoint {
    let call = |tool: &str, arguments: Value| ScriptedToolCall::new(tool, tool, arguments);
    let told = json!({ "text": leaks });
    let calls = [
        call("leaks", json!({})),
        call("fails", told.clone()),
        call("large", json!({})),
        call("pay", json!({ "invoice": leaks })),
        call("memory_save", told.clone()),
        call("web__echo", told.clone()),
        call("ours__echo", told),
    ];
    let answers = [
        ScriptedAnswer::default().tool_calls([call("walled", json!({}))]),
        ScriptedAnswer::saying(leaks).tool_calls(calls),
        ScriptedAnswer::saying(leaks),
    ];
    ScriptedEndpoint::openai(vec![answers; RUNS].concat())
}

/// A server of tools that wants a token, which it repeats with all other secrets: before a tool was called, and in the
/// result of its own.
fn web(token: String, before: String, leaks: String) -> Loopback {
    Loopback::serving(move |request: &Request| {
        if request.path == "/token" {
            return Reply::json(200, &json!({ "access_token": token, "token_type": "Bearer" }));
        }
        if request.header("authorization") != Some(&format!("Bearer {token}")) {
            return Reply::new(401, "text/plain", "log in");
        }
        let result = match request.body["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "web", "version": "1" },
            }),
            "tools/list" => json!({ "tools": [{
                "name": "echo",
                "description": before,
                "inputSchema": { "type": "object" },
            }] }),
            "tools/call" => json!({ "content": [{ "type": "text", "text": leaks }] }),
            "" => return Reply::new(405, "text/plain", ""),
            method if method.starts_with("notifications/") => {
                return Reply::new(202, "text/plain", "");
            }
            _ => {
                let error = json!({ "code": -32601, "message": before });
                let id = &request.body["id"];
                return Reply::json(200, &json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
        };
        let id = &request.body["id"];
        Reply::json(200, &json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    })
}

/// A server in sh, whose tool repeats every secret in its result and on standard error.
const PROGRAM: &str = r#"
cat given/leaks.txt >&2
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
    case $line in
        *'"initialize"'*) answer '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"ours","version":"1"}}' ;;
        *'"tools/list"'*) answer '"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}' ;;
        *'"tools/call"'*) answer "\"result\":{\"isError\":true,\"content\":[{\"type\":\"text\",\"text\":$(cat given/leaks.json)}]}" ;;
        *'"id"'*) answer '"error":{"code":-32601,"message":"no"}' ;;
    esac
done
"#;

/// Returns the agent file.
fn agent(model: &str, web: &str, hook: &str, store: &str, literal: &str) -> String {
    let tool = |name: &str, line: &str, more: &str| {
        format!(
            "[[tools]]\nkind = \"command\"\nname = \"{name}\"\ndescription = \"d\"\n\
             command = [\"sh\", \"-c\", \"{line}\"]\n{more}\n"
        )
    };
    let tells = |name: &str, action: &str| {
        format!("[[behavior]]\nname = \"{name}\"\non = \"run.finished\"\n{action}\n")
    };
    let walls = "environment = { credentials = { WALLED = \"command:cat given/walls.txt\" }, best_effort = true }";
    let tools = [
        tool("walled", "echo done", walls),
        tool("leaks", "cat given/leaks.txt", "env = [\"PATH\", \"TOOL_API_KEY\"]"),
        tool("fails", "cat given/leaks.txt >&2; cat given/leaks.txt; exit 1", ""),
        tool("large", "cat given/leaks.txt; yes | head -c 40000; cat given/leaks.txt", ""),
        tool("pay", "cat given/leaks.json", "once = \"/invoice\""),
        "[[tools]]\nkind = \"builtin\"\nname = \"memory_save\"\n".to_owned(),
    ];
    let behaviors = [
        tells("program", "command = [\"sh\", \"-c\", \"cat given/leaks.txt >&2; exit 3\"]"),
        tells(
            "hook",
            &format!(
                "url = \"{hook}/\"\nheaders = {{ authorization = \"env:HOOK_HEADER\" }}\nsigning_key = \"env:HOOK_KEY\""
            ),
        ),
    ];
    format!(
        "[agent]\nname = \"agent\"\n\
         [agent.policy]\ngrant = [\"process:spawn\", \"memory\", \"network:outbound\"]\n\
         [agent.price]\ninput_per_mtok = 1.0\noutput_per_mtok = 1.0\n\
         [store]\nurl = \"{store}\"\n[memory]\nscope = \"agent\"\n\
         [[limit]]\nscope = \"label:team\"\nper = \"day\"\nmax_cost_usd = 1.0\n\
         [model]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"{model}\"\napi_key_env = \"MODEL_KEY\"\n\
         [model.headers]\nx-by-env = \"env:MODEL_HEADER\"\nx-by-file = \"file:given/header.txt\"\n\
         x-by-command = \"command:cat given/command.txt\"\nx-api-key = '{literal}'\n\
         [[model.fallback]]\nprovider = \"anthropic\"\nmodel = \"m\"\napi_key_env = \"FALLBACK_KEY\"\n\
         [[mcp]]\nname = \"web\"\nurl = \"{web}/mcp\"\nheaders = {{ x-web = \"env:WEB_HEADER\" }}\n\
         oauth = {{ client_id = \"me\", client_secret = \"env:CLIENT_SECRET\", token_url = \"{web}/token\" }}\n\
         [[mcp]]\nname = \"ours\"\ncommand = [\"sh\", \"given/server.sh\"]\nenv = [\"PATH\", \"OURS_API_KEY\"]\n\
         environment = {{ credentials = {{ OURS = \"file:given/ours.txt\" }}, best_effort = true }}\n\
         {}{}",
        tools.concat(),
        behaviors.concat()
    )
}
