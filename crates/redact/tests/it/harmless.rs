//! Texts without a secret.

use std::borrow::Cow;

use backstop_redact::Redactor;

/// Prose, code and logs with the words that precede secrets.
const HARMLESS: &[&str] = &[
    "syntax error near 'FROM'",
    "token budget 2000000 used up",
    "see https://example.com/a:b@c",
    "password is required",
    "task-1234567890123456789",
    "unexpected token: expected identifier",
    "invalid token 'foo' at line 12",
    "token=5, max_tokens=4096, tokens: 1000000",
    "return self.handler(request, token=123)",
    "let token = lexer.next_token();",
    "fn login(password: &str, token: Token) -> Secret {",
    "def login(self, password: str, secret: Optional[str] = None):",
    "password = get_password(prompt)",
    "password=settings.DATABASE_PASSWORD",
    "api_key=os.environ['OPENAI_API_KEY']",
    "client = Client(api_key=config.api_key)",
    "if token == expected_token { return }",
    "Token::new(secret::Kind)",
    "password: must be at least 8 characters",
    r#"{"password": "is too short, must have 8 characters"}"#,
    r#"{"password": null, "token": false, "secret": ""}"#,
    r#"{"password": {"type": "string"}}"#,
    "password=${DB_PASSWORD}",
    "password=$DB_PASSWORD",
    "password: ********",
    "token: <your token>",
    "PWD=/home/ada/project OLDPWD=/home/ada",
    "the primary key: customer_id_1234",
    "foreign_key=orders_customer_2024",
    "cache_key=user:1234567890",
    "compass=north123456",
    "Bearer authentication is not supported",
    "basic authentication failed, try digest",
    "Basic understanding required",
    "token verification failed after 3 tries",
    "WWW-Authenticate: Bearer realm=\"api\"",
    "authorization: required",
    "Authorization: Bearer <token>",
    "cookie: missing",
    "https://ada@example.com/repo.git",
    "ssh://git@github.com/ada/repo.git",
    "git@github.com:ada/repo.git",
    "https://user:${PASSWORD}@host/",
    "npm:lodash@4.17.21/index.js",
    "image nginx:stable@sha256:0123456789abcdef",
    "docker run -u 1000:1000 image",
    "at 12:30@noon.example/",
    "ada@example.com: mailbox full",
    "https://example.com/?code=404&key=name",
    "sk-learn and sk-image are packages",
    "hf_hub_download failed",
    "npm_config_registry=https://registry.npmjs.org/",
    "the key-value store",
    "SK and SG. are abbreviations",
    "eyJ begins JSON in Base64",
    "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIE\n-----END PUBLIC KEY-----",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "id 018f4f6e-7b1c-7e4a-9b5d-3f2a1c0e9d8b",
    "run_018f4f6e-7b1c-7e4a-9b5d-3f2a1c0e9d8b",
    "2026-01-01T00:00:00Z WARN db::pool: connection 3 to db-3.internal:5432 was reset by peer",
    "passing=12 failing=3, pass: 15",
    "the secret: people read it",
    "key: value",
    "keyboard=qwertz12",
    "secretary: Ada Lovelace",
    "tokenizer=gpt2-large-v2",
    "next page at /a?page_size=100&order=name",
];

/// Spec: S9
#[test]
fn ordinary_text_stays_as_it_is() {
    for text in HARMLESS {
        let redactor = Redactor::new();
        let json = serde_json::json!({ "message": text }).to_string();
        for text in [*text, &format!("first\n{text}\nlast"), &json] {
            let redacted = redactor.redact(text);
            assert!(matches!(redacted, Cow::Borrowed(_)), "{text}\nbecame\n{redacted}");
        }
    }
}
