use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Lit, LitStr, Meta, Result, Token, parse::Parser};

/// What stands between the parentheses of `#[tool(…)]`.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) name: Option<String>,
    pub(crate) capabilities: Vec<String>,
    pub(crate) idempotent: bool,
    pub(crate) exploratory: bool,
    pub(crate) approval: bool,
    pub(crate) timeout_ms: Option<u64>,
}

impl Options {
    pub(crate) fn parse(tokens: proc_macro2::TokenStream) -> Result<Self> {
        let mut options = Self::default();
        let list = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(tokens)?;
        for option in list {
            let name = option.path().get_ident().map(ToString::to_string).unwrap_or_default();
            match (name.as_str(), &option) {
                ("idempotent", Meta::Path(_)) => options.idempotent = true,
                ("exploratory", Meta::Path(_)) => options.exploratory = true,
                ("approval", Meta::Path(_)) => options.approval = true,
                ("name", Meta::NameValue(pair)) => options.name = Some(text(&pair.value)?.value()),
                ("timeout", Meta::NameValue(pair)) => {
                    options.timeout_ms = Some(milliseconds(&text(&pair.value)?)?);
                }
                ("capabilities", Meta::List(list)) => {
                    let texts =
                        list.parse_args_with(Punctuated::<LitStr, Token![,]>::parse_terminated)?;
                    options.capabilities = texts.iter().map(LitStr::value).collect();
                }
                _ => {
                    return Err(Error::new_spanned(
                        option,
                        "expected one of: name = \"…\", idempotent, exploratory, approval, \
                         timeout = \"5s\", capabilities(\"…\")",
                    ));
                }
            }
        }
        Ok(options)
    }
}

fn text(value: &Expr) -> Result<LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text.clone()),
        other => Err(Error::new_spanned(other, "expected a string")),
    }
}

fn milliseconds(text: &LitStr) -> Result<u64> {
    let value = text.value();
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &value[digits.len()..] {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        _ => None,
    };
    digits
        .parse::<u64>()
        .ok()
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor))
        .filter(|ms| *ms > 0)
        .ok_or_else(|| {
            Error::new_spanned(text, "expected a duration such as \"500ms\", \"5s\" or \"2m\"")
        })
}
