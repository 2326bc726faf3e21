//! Tokens that name their issuer, by the formats that the issuers publish for secret scanning.

use std::sync::OnceLock;

use regex::Regex;

use crate::ranges::RedactionRange;
use crate::steps;

/// One format of tokens.
pub(crate) struct Token {
    /// The text that every such token begins with or contains. Only texts with this are searched.
    pub(crate) word: &'static str,
    /// The shortest such token; bounded, so that hostile text costs no more than ordinary text.
    shortest: &'static str,
    /// The characters besides letters and digits that the rest may contain.
    more: &'static str,
    /// The least number of full stops.
    stops: usize,
    regex: OnceLock<Regex>,
}

const fn token(word: &'static str, shortest: &'static str, more: &'static str) -> Token {
    Token { word, shortest, more, stops: 0, regex: OnceLock::new() }
}

const fn jwt(word: &'static str, shortest: &'static str, more: &'static str) -> Token {
    Token { word, shortest, more, stops: 2, regex: OnceLock::new() }
}

/// The keys of Anthropic, OpenAI, DeepSeek and OpenRouter all begin with `sk-`; those of the first
/// two contain further words, which the row includes.
pub(crate) static TOKENS: [Token; 84] = [
    // OpenAI, Anthropic (`sk-ant-api03-…`), OpenRouter (`sk-or-v1-…`), DeepSeek: their API references.
    token("sk-", r"sk-[A-Za-z0-9_-]{16}", "_-"),
    // AWS: IAM User Guide, "Understanding unique ID prefixes" (AKIA, ASIA, ABIA, ACCA).
    token("AKIA", r"AKIA[0-9A-Z]{16}", ""),
    token("ASIA", r"ASIA[0-9A-Z]{16}", ""),
    token("ABIA", r"ABIA[0-9A-Z]{16}", ""),
    token("ACCA", r"ACCA[0-9A-Z]{16}", ""),
    // Amazon Bedrock API keys: Bedrock User Guide, "API keys" (long-term, short-term).
    token("ABSK", r"ABSK[A-Za-z0-9+/]{60}", "+/="),
    token("bedrock-api-key-", r"bedrock-api-key-[A-Za-z0-9+/=_-]{16}", "+/=_-"),
    // Google: API keys, OAuth client secrets, access and refresh tokens (Google Cloud, "Authentication").
    token("AIza", r"AIza[0-9A-Za-z_-]{30}", "_-"),
    token("GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20}", "_-"),
    token("ya29.", r"ya29\.[A-Za-z0-9_-]{20}", "._-"),
    token("1//0", r"1//0[A-Za-z0-9_-]{30}", "_-"),
    token("AQ.Ab", r"AQ\.Ab[A-Za-z0-9_-]{30}", "_-"),
    // GitHub: "Behind GitHub's new authentication token formats" (2021).
    token("ghp_", r"ghp_[A-Za-z0-9]{20}", "_"),
    token("gho_", r"gho_[A-Za-z0-9]{20}", "_"),
    token("ghu_", r"ghu_[A-Za-z0-9]{20}", "_"),
    token("ghs_", r"ghs_[A-Za-z0-9]{20}", "._-"),
    token("ghr_", r"ghr_[A-Za-z0-9]{20}", "_"),
    token("github_pat_", r"github_pat_[A-Za-z0-9_]{20}", "_"),
    // GitLab: "Token overview", table of token prefixes.
    token(
        "gl",
        r"gl(?:agent|cbt|dt|feat|ffct|ft|imt|oas|pat|ptt|rt|rtr|soat|wt)-[A-Za-z0-9_-]{16}",
        "._-",
    ),
    token("GR1348941", r"GR1348941[A-Za-z0-9_-]{16}", "_-"),
    // Slack: "Token types"; app-level tokens; incoming webhooks and workflow triggers.
    token("xox", r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10}", "-"),
    token("xapp-", r"xapp-[0-9]-[A-Za-z0-9-]{10}", "-"),
    token(
        "hooks.slack",
        r"(?P<keep>hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/)[A-Za-z0-9/_-]{10}",
        "/_-",
    ),
    // Discord: "Webhook resource"; Microsoft Teams: incoming webhooks.
    token("api/webhooks/", r"(?P<keep>api/webhooks/[0-9]{5,25}/)[A-Za-z0-9_-]{20}", "_-"),
    token("webhook.office.com/", r"(?P<keep>webhook\.office\.com/)[A-Za-z0-9@/_-]{36}", "@/_-"),
    // Stripe: "API keys" (secret and restricted keys), "Webhooks" (signing secrets).
    token("_live_", r"(?:sk|rk)_live_[A-Za-z0-9]{10}", "_"),
    token("_test_", r"(?:sk|rk)_test_[A-Za-z0-9]{10}", "_"),
    token("whsec_", r"whsec_[A-Za-z0-9+/]{20}", "+/="),
    // Hugging Face: "User access tokens"; organisation tokens.
    token("hf_", r"hf_[A-Za-z0-9]{30}", ""),
    token("api_org_", r"api_org_[A-Za-z0-9]{30}", ""),
    // npm: "About access tokens"; GitHub's format with the prefix `npm`.
    token("npm_", r"npm_[A-Za-z0-9]{30}", ""),
    // xAI, Groq, Perplexity, NVIDIA, Replicate, Fireworks, Cerebras, Tavily, LangSmith: their consoles.
    token("xai-", r"xai-[A-Za-z0-9]{30}", "_-"),
    token("gsk_", r"gsk_[A-Za-z0-9]{30}", ""),
    token("pplx-", r"pplx-[A-Za-z0-9]{30}", ""),
    token("nvapi-", r"nvapi-[A-Za-z0-9_-]{40}", "_-"),
    token("r8_", r"r8_[A-Za-z0-9]{37}", ""),
    token("fw_", r"fw_[A-Za-z0-9]{22}", ""),
    token("csk-", r"csk-[a-z0-9]{40}", ""),
    token("tvly-", r"tvly-(?:dev-|prod-)?[A-Za-z0-9-]{20}", "-"),
    token("lsv2_", r"lsv2_(?:pt|sk)_[a-f0-9]{30}", "_"),
    // Azure: storage account keys, shared access keys, SAS signatures (Storage REST, "Delegate access
    // with a shared access signature"), client secrets of Entra, identifiable keys of its AI services.
    token("AccountKey", r"(?P<keep>AccountKey\s{0,4}=\s{0,4})[A-Za-z0-9+/]{20}", "+/="),
    token("SharedAccessKey", r"(?P<keep>SharedAccessKey\s{0,4}=\s{0,4})[A-Za-z0-9+/]{20}", "+/="),
    token("sig=", r"(?P<keep>[?&;]sig=)[A-Za-z0-9%+/_-]{20}", "%+/=_-"),
    token("7Q~", r"[A-Za-z0-9_~.]{3}7Q~[A-Za-z0-9_~.-]{31}", "_~.-"),
    token("8Q~", r"[A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{31}", "_~.-"),
    token("JQQJ99", r"[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{8}", ""),
    // JSON Web Tokens, signed (RFC 7519) and encrypted (RFC 7516): `{"` in Base64 is `eyJ`.
    jwt("eyJ", r"eyJ[A-Za-z0-9_-]{8}", "._-"),
    // Package registries: PyPI and RubyGems ("API tokens"), crates.io, Docker Hub, NuGet.
    token("pypi-", r"pypi-[A-Za-z0-9_-]{50}", "_-"),
    token("rubygems_", r"rubygems_[a-f0-9]{40}", ""),
    token("dckr_", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20}", "_-"),
    token("oy2", r"oy2[a-z0-9]{43}", ""),
    // HashiCorp: Vault ("Tokens"), HCP Terraform ("API tokens").
    token("hvs.", r"hvs\.[A-Za-z0-9_-]{20}", "_-"),
    token("hvb.", r"hvb\.[A-Za-z0-9_-]{20}", "_-"),
    token("hvr.", r"hvr\.[A-Za-z0-9_-]{20}", "_-"),
    token(".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40}", "_-"),
    // Mail and messages: SendGrid, Mailgun, Mailchimp, Twilio, Telegram.
    token("SG.", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{20}", "_-"),
    token("key-", r"key-[0-9a-f]{32}", ""),
    token("-us", r"[0-9a-f]{32}-us[0-9]{1,2}", ""),
    token("SK", r"SK[0-9a-f]{32}", ""),
    token(":AA", r"[0-9]{8,10}:AA[A-Za-z0-9_-]{32}", "_-"),
    // Clouds and hosts: DigitalOcean, Databricks, Heroku, Supabase, PlanetScale, Cloudflare, Vercel.
    token("_v1_", r"do[opr]_v1_[a-f0-9]{40}", ""),
    token("dapi", r"dapi[a-f0-9]{32}", "-"),
    token("HRKU-", r"HRKU-[A-Za-z0-9_-]{30}", "_-"),
    token("sbp_", r"sbp_[a-f0-9]{40}", ""),
    token("sb_secret_", r"sb_secret_[A-Za-z0-9_-]{20}", "_-"),
    token("pscale_", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{30}", "_.=-"),
    token("vercel_blob_rw_", r"vercel_blob_rw_[A-Za-z0-9_]{20}", "_"),
    // Shops and payment: Shopify, Square, PayPal's Braintree.
    token("shp", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}", ""),
    token("sq0", r"sq0[a-z]{3}-[A-Za-z0-9_-]{20}", "_-"),
    token("access_token$", r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}", ""),
    // Tools of teams: Atlassian, Linear, Notion, Grafana, New Relic, Sentry, Postman, Figma, Airtable,
    // Doppler, 1Password.
    token("ATATT3", r"ATATT3[A-Za-z0-9_=-]{40}", "_=-"),
    token("ATCTT3", r"ATCTT3[A-Za-z0-9_=-]{40}", "_=-"),
    token("lin_api_", r"lin_api_[A-Za-z0-9]{30}", ""),
    token("ntn_", r"ntn_[A-Za-z0-9]{40}", ""),
    token("glsa_", r"glsa_[A-Za-z0-9]{30}", "_"),
    token("glc_", r"glc_[A-Za-z0-9+/]{30}", "+/="),
    token("NRAK-", r"NRAK-[A-Z0-9]{27}", ""),
    token("sntry", r"sntry[su]_[A-Za-z0-9+/=_]{30}", "+/=_"),
    token("PMAK-", r"PMAK-[a-f0-9]{24}-[a-f0-9]{30}", ""),
    token("figd_", r"figd_[A-Za-z0-9_-]{30}", "_-"),
    token("pat", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{60}", ""),
    token("dp.", r"dp\.(?:audit|ct|pt|sa|scim|st)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40}", ""),
    token("ops_eyJ", r"ops_eyJ[A-Za-z0-9+/]{100}", "+/="),
    // age: "age-encryption.org/v1", native X25519 identities.
    token("AGE-SECRET-KEY-", r"AGE-SECRET-KEY-(?:PQ-)?1[0-9A-Z]{50}", ""),
];

impl Token {
    /// Finds the tokens of this format.
    pub(crate) fn find(&self, text: &str, found: &mut Vec<RedactionRange>) {
        let regex = self.regex.get_or_init(|| {
            Regex::new(self.shortest).expect("the rows above are valid expressions")
        });
        let mut from = 0;
        while let Some(shortest) = regex.captures_at(text, from) {
            let whole = shortest.get_match().range();
            steps::count(whole.end - from);
            if !begins_word(text, whole.start) {
                from = end_of_word(text, whole.start);
                continue;
            }
            let start = shortest.name("keep").map_or(whole.start, |keep| keep.end());
            let end = self.find_end(text, whole.end);
            if text[start..end].matches('.').count() >= self.stops {
                // A full stop after a token ends a sentence.
                let end = whole.end + text[whole.end..end].trim_end_matches('.').len();
                found.push(RedactionRange::at(with_its_escape(text, start)..end));
            }
            from = end;
        }
    }

    fn find_end(&self, text: &str, from: usize) -> usize {
        let belongs =
            |byte: &u8| byte.is_ascii_alphanumeric() || self.more.as_bytes().contains(byte);
        let length = text.as_bytes()[from..].iter().take_while(|byte| belongs(byte)).count();
        steps::count(length);
        from + length
    }
}

/// Returns the end of the word at a place; every place before the end is within the same word.
fn end_of_word(text: &str, at: usize) -> usize {
    let rest = text.as_bytes()[at..].iter();
    at + rest.take_while(|byte| byte.is_ascii_alphanumeric()).count().max(1)
}

/// Returns the start of a token with its escape: a token after a backslash may begin with the
/// letter of an escape, as in `\npm_…` in JSON, and both are redacted then, so that no half escape
/// remains.
fn with_its_escape(text: &str, start: usize) -> usize {
    let before = text.as_bytes()[..start].iter().rev();
    let backslashes = before.take_while(|byte| **byte == b'\\').count();
    steps::count(backslashes);
    start - backslashes % 2
}

/// Returns whether a word begins at this place, and not within a longer one. The letter of an
/// escape before it, such as the `n` of `\n` in JSON, belongs to no word.
pub(crate) fn begins_word(text: &str, at: usize) -> bool {
    let before = &text.as_bytes()[..at];
    match before {
        [] => true,
        [.., last] if !last.is_ascii_alphanumeric() => true,
        [.., b'\\', b'b' | b'f' | b'n' | b'r' | b't'] => true,
        [.., b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => true,
        [.., b'\\', b'u', a, b, c, d] => [a, b, c, d].iter().all(|byte| byte.is_ascii_hexdigit()),
        // A colour of the terminal: `ESC [ 31 m`.
        [.., b'm'] => {
            let numbers = before[..at - 1].iter().rev();
            let length =
                numbers.take_while(|byte| matches!(byte, b'0'..=b'9' | b';')).take(16).count();
            let introducer = &before[..at - 1 - length];
            [&b"\x1b["[..], b"\\u001b[", b"\\x1b[", b"\\e[", b"\\033["]
                .iter()
                .any(|sequence| introducer.ends_with(sequence))
        }
        _ => false,
    }
}
