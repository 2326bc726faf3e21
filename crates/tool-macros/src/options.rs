use std::collections::BTreeSet;

use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{
    Error, Expr, ExprLit, Lit, LitStr, Meta, MetaList, MetaNameValue, Path, Result, Token,
    parse::Parser,
};

/// The options between the parentheses of `#[tool(…)]`.
#[derive(Default)]
pub(crate) struct ToolOptions {
    /// The path of `backstop_tool`, if it is not the default.
    pub(crate) home: Option<Path>,
    pub(crate) name: Option<String>,
    pub(crate) capabilities: Vec<String>,
    pub(crate) idempotent: bool,
    pub(crate) exploratory: bool,
    pub(crate) approval: Option<ApprovalOptions>,
    pub(crate) timeout_ms: Option<u64>,
    /// The function that returns whether a call happened.
    pub(crate) probe: Option<Path>,
    pub(crate) probe_is_final: bool,
    /// JSON pointer to the argument whose value identifies a `once` call.
    pub(crate) once: Option<String>,
}

/// The options between the parentheses of `approval(…)`.
#[derive(Default)]
pub(crate) struct ApprovalOptions {
    pub(crate) expires_after_ms: Option<u64>,
    pub(crate) approvers: Vec<String>,
}

impl ToolOptions {
    pub(crate) fn parse(tokens: proc_macro2::TokenStream) -> Result<Self> {
        let mut options = Self::default();
        let list = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(tokens)?;
        let mut given = BTreeSet::new();
        for option in list {
            let name = option.path().get_ident().map(ToString::to_string).unwrap_or_default();
            // A repeated option would replace the first one.
            once_only(&mut given, &name, &option)?;
            match (name.as_str(), &option) {
                ("idempotent", Meta::Path(_)) => options.idempotent = true,
                ("exploratory", Meta::Path(_)) => options.exploratory = true,
                ("approval", Meta::Path(_)) => options.approval = Some(ApprovalOptions::default()),
                ("approval", Meta::List(list)) => {
                    options.approval = Some(ApprovalOptions::parse(list)?);
                }
                ("crate", Meta::NameValue(pair)) => options.home = Some(path(&pair.value)?),
                ("name", Meta::NameValue(pair)) => options.name = Some(text(&pair.value)?.value()),
                ("probe", Meta::NameValue(pair)) => options.probe = Some(path(&pair.value)?),
                ("once", Meta::NameValue(pair)) => options.once = Some(pointer(&pair.value)?),
                ("probe_is_final", Meta::Path(_)) => options.probe_is_final = true,
                ("timeout", Meta::NameValue(pair)) => {
                    options.timeout_ms = Some(milliseconds(&pair.value)?);
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
                         approval(expires_after_ms = 60000, approvers = [\"…\"]), timeout = \"5s\", \
                         capabilities(\"…\"), probe = function, probe_is_final, \
                         once = \"args.invoice_id\", \
                         crate = path::to::backstop_tool",
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Refuses a repeated option.
fn once_only(given: &mut BTreeSet<String>, name: &str, option: &impl ToTokens) -> Result<()> {
    match given.insert(name.to_owned()) {
        true => Ok(()),
        false => Err(Error::new_spanned(option, format!("`{name}` is given twice"))),
    }
}

/// Reads `args.invoice_id` or `/invoice_id`.
fn pointer(value: &Expr) -> Result<String> {
    let written = text(value)?;
    let pointer = match written.value() {
        pointer if pointer.starts_with('/') => pointer,
        names => match names.strip_prefix("args.") {
            Some(names) => format!("/{}", names.replace('.', "/")),
            None => String::new(),
        },
    };
    match pointer.len() > 1 && !pointer.contains("//") && !pointer.ends_with('/') {
        true => Ok(pointer),
        false => Err(Error::new_spanned(
            written,
            "expected an argument, such as \"args.invoice_id\", or a JSON pointer",
        )),
    }
}

fn path(value: &Expr) -> Result<Path> {
    match value {
        Expr::Path(path) => Ok(path.path.clone()),
        other => {
            Err(Error::new_spanned(other, "expected a path, such as `my_crate::backstop_tool`"))
        }
    }
}

impl ApprovalOptions {
    fn parse(list: &MetaList) -> Result<Self> {
        let mut approval = Self::default();
        let options =
            list.parse_args_with(Punctuated::<MetaNameValue, Token![,]>::parse_terminated)?;
        let mut given = BTreeSet::new();
        for MetaNameValue { path, value, .. } in &options {
            let name = path.get_ident().map(ToString::to_string).unwrap_or_default();
            once_only(&mut given, &name, path)?;
            if path.is_ident("expires_after_ms") {
                approval.expires_after_ms = Some(count(value)?);
            } else if path.is_ident("approvers") {
                approval.approvers = names(value)?;
            } else {
                let expected = "expected one of: expires_after_ms = 60000, approvers = [\"…\"]";
                return Err(Error::new_spanned(path, expected));
            }
        }
        Ok(approval)
    }
}

fn count(value: &Expr) -> Result<u64> {
    let expected = || Error::new_spanned(value, "expected a number from 1 on");
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => match number.base10_parse() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(expected()),
        },
        _ => Err(expected()),
    }
}

fn names(value: &Expr) -> Result<Vec<String>> {
    let Expr::Array(names) = value else {
        return Err(Error::new_spanned(value, "expected a list of names, such as [\"ops\"]"));
    };
    let name = |value| match text(value)? {
        name if name.value().trim().is_empty() => {
            Err(Error::new_spanned(name, "a name must not be empty"))
        }
        name => Ok(name.value()),
    };
    names.elems.iter().map(name).collect()
}

fn text(value: &Expr) -> Result<LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text.clone()),
        other => Err(Error::new_spanned(other, "expected a string")),
    }
}

fn milliseconds(written: &Expr) -> Result<u64> {
    let unreadable =
        || Error::new_spanned(written, "expected a duration such as \"500ms\", \"5s\" or \"2m\"");
    let value = text(written).map_err(|_| unreadable())?.value();
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &value[digits.len()..] {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        _ => None,
    };
    let ms = digits.parse::<u64>().ok().zip(factor);
    let ms = ms.and_then(|(number, factor)| number.checked_mul(factor));
    ms.filter(|ms| *ms > 0).ok_or_else(unreadable)
}
