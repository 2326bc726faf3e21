//! Tokens that name their issuer. Samples are assembled from pieces: as a whole, they would look real.

use backstop_redact::Redactor;

use crate::{alnum, hex, lower, upper};

fn samples() -> Vec<(&'static str, String)> {
    let jwt = |name: &str| format!("eyJ{}.eyJ{}.{name}{}", alnum(20), alnum(40), alnum(43));
    vec![
        ("OpenAI", format!("sk-{}", alnum(48))),
        ("OpenAI project", format!("sk-proj-{}-_{}", alnum(60), alnum(20))),
        ("Anthropic", format!("sk-ant-api03-{}-AA", alnum(93))),
        ("OpenRouter", format!("sk-or-v1-{}", hex(64))),
        ("AWS", format!("AKIA{}", upper(16))),
        ("AWS STS", format!("ASIA{}", upper(16))),
        ("Bedrock", format!("ABSK{}=", alnum(120))),
        ("Bedrock short-term", format!("bedrock-api-key-{}", alnum(200))),
        ("Google API", format!("AIza{}", alnum(35))),
        ("Google OAuth client", format!("GOCSPX-{}", alnum(28))),
        ("Google access", format!("ya29.{}", alnum(100))),
        ("Google refresh", format!("1//0{}", alnum(60))),
        ("Gemini", format!("AQ.Ab{}", alnum(48))),
        ("GitHub", format!("ghp_{}", alnum(36))),
        ("GitHub app", format!("ghs_{}", alnum(36))),
        ("GitHub refresh", format!("ghr_{}", alnum(76))),
        ("GitHub fine-grained", format!("github_pat_{}_{}", alnum(22), alnum(59))),
        ("GitLab", format!("glpat-{}", alnum(20))),
        ("GitLab routable", format!("glpat-{}.01.{}", alnum(27), alnum(9))),
        ("GitLab runner", format!("glrt-{}", alnum(20))),
        ("Slack bot", format!("xoxb-{}-{}", "1".repeat(12), alnum(24))),
        ("Slack app", format!("xapp-1-A{}-{}-{}", upper(10), "2".repeat(13), hex(64))),
        ("Slack rotated", format!("xoxe.xoxb-1-{}", alnum(160))),
        ("Stripe", format!("sk_live_{}", alnum(24))),
        ("Stripe test", format!("sk_test_{}", alnum(99))),
        ("Stripe restricted", format!("rk_live_{}", alnum(24))),
        ("Stripe webhook", format!("whsec_{}", alnum(32))),
        ("Hugging Face", format!("hf_{}", alnum(34))),
        ("npm", format!("npm_{}", alnum(36))),
        ("xAI", format!("xai-{}", alnum(80))),
        ("Groq", format!("gsk_{}", alnum(52))),
        ("Perplexity", format!("pplx-{}", alnum(48))),
        ("NVIDIA", format!("nvapi-{}", alnum(64))),
        ("Replicate", format!("r8_{}", alnum(37))),
        ("Cerebras", format!("csk-{}", lower(48))),
        ("LangSmith", format!("lsv2_pt_{}_{}", hex(32), hex(10))),
        ("Entra", format!("{}8Q~{}", alnum(3), alnum(34))),
        ("Azure AI", format!("{}JQQJ99{}", alnum(52), alnum(26))),
        ("JWT", jwt("a")),
        ("JWE", format!("eyJ{}.{}.{}.{}.{}", alnum(20), alnum(9), alnum(9), alnum(9), alnum(9))),
        ("PyPI", format!("pypi-{}", alnum(80))),
        ("RubyGems", format!("rubygems_{}", hex(48))),
        ("Docker", format!("dckr_pat_{}", alnum(27))),
        ("NuGet", format!("oy2{}", lower(43))),
        ("Vault", format!("hvs.{}", alnum(90))),
        ("Terraform", format!("{}.atlasv1.{}", alnum(14), alnum(67))),
        ("SendGrid", format!("SG.{}.{}", alnum(22), alnum(43))),
        ("Mailgun", format!("key-{}", hex(32))),
        ("Mailchimp", format!("{}-us12", hex(32))),
        ("Twilio", format!("SK{}", hex(32))),
        ("Telegram", format!("123456789:AA{}", alnum(33))),
        ("DigitalOcean", format!("dop_v1_{}", hex(64))),
        ("Databricks", format!("dapi{}", hex(32))),
        ("Supabase", format!("sbp_{}", hex(40))),
        ("PlanetScale", format!("pscale_tkn_{}", alnum(43))),
        ("Shopify", format!("shpat_{}", hex(32))),
        ("Square", format!("sq0csp-{}", alnum(43))),
        ("Atlassian", format!("ATATT3{}={}", alnum(180), hex(8))),
        ("Linear", format!("lin_api_{}", alnum(40))),
        ("Notion", format!("ntn_{}", alnum(46))),
        ("Grafana", format!("glsa_{}_{}", alnum(32), hex(8))),
        ("New Relic", format!("NRAK-{}", upper(27))),
        ("Sentry", format!("sntrys_{}", alnum(60))),
        ("Postman", format!("PMAK-{}-{}", hex(24), hex(34))),
        ("Figma", format!("figd_{}", alnum(40))),
        ("Airtable", format!("pat{}.{}", alnum(14), hex(64))),
        ("Doppler", format!("dp.pt.{}", alnum(43))),
        ("1Password", format!("ops_eyJ{}", alnum(300))),
        ("age", format!("AGE-SECRET-KEY-1{}", upper(58))),
    ]
}

/// Spec: S9
#[test]
fn tokens_go_wherever_they_stand() {
    let redactor = Redactor::new();
    for (issuer, token) in samples() {
        let token = token.as_str();
        let check = |text: String, expected: &str| {
            assert_eq!(redactor.redact(&text), expected, "{issuer}: {text}");
        };
        check(token.to_owned(), "[redacted]");
        check(format!("it is {token}, no"), "it is [redacted], no");
        check(format!("(at {token})"), "(at [redacted])");
        check(format!(r#"{{"m": "line\n{token}"}}"#), r#"{"m": "line\n[redacted]"}"#);
        check(
            format!(r#"{{"m": "\u001b[31m{token}\u001b[0m"}}"#),
            r#"{"m": "\u001b[31m[redacted]\u001b[0m"}"#,
        );
        check(format!("\u{1b}[31m{token}\u{1b}[0m"), "\u{1b}[31m[redacted]\u{1b}[0m");
        if issuer == "Telegram" {
            // Digits before digits are a longer number.
            continue;
        }
        check(format!("a%20{token}%20b"), "a%20[redacted]%20b");
        check(format!("früher_{token}\nspäter"), "früher_[redacted]\nspäter");
    }
}

/// Spec: S9. The beginnings of tokens are common inside of words.
#[test]
fn tokens_are_words_of_their_own() {
    let redactor = Redactor::new();
    for (issuer, token) in samples() {
        let text = format!("aaa{token}");
        let redacted = redactor.redact(&text);
        assert!(redacted.starts_with("aaa"), "{issuer}: {redacted}");
    }
}

/// Spec: S9. An escape is never cut in half.
#[test]
fn valid_json_stays_valid() {
    let redactor = Redactor::new();
    for (issuer, token) in samples() {
        for text in [
            format!(r#"{{"m": "\{token}"}}"#),
            format!(r#"{{"m": "\\{token}"}}"#),
            format!(r#"{{"m": "{token}\""}}"#),
        ] {
            if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
                let redacted = redactor.redact(&text);
                let value = serde_json::from_str::<serde_json::Value>(&redacted);
                assert!(value.is_ok(), "{issuer}: {text} to {redacted}");
            }
        }
    }
}
