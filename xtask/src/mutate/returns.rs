//! Trivial results, which a mutant of a function returns at once.

use quote::ToTokens;
use syn::{Block, Expr, GenericArgument, Local, Pat, PathArguments, ReturnType, Stmt, Type};

/// Returns the trivial results for a function, without the one that its body returns anyway.
pub(super) fn replaced_results(output: &ReturnType, block: &Block) -> Vec<&'static str> {
    let results = match output {
        ReturnType::Default => vec!["()"],
        ReturnType::Type(_, kind) => results(kind),
    };
    let statements: Vec<&Stmt> = block.stmts.iter().filter(|stmt| !names_only(stmt)).collect();
    let only = match statements.as_slice() {
        [] => "()".to_owned(),
        [Stmt::Expr(expr, None)] => expr_text(expr),
        _ => String::new(),
    };
    results.into_iter().filter(|result| result.replace(' ', "") != only).collect()
}

fn results(kind: &Type) -> Vec<&'static str> {
    match kind {
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return Vec::new() };
            match last.ident.to_string().as_str() {
                "bool" => vec!["true", "false"],
                "Option" => vec!["None"],
                "String" => vec!["String::new()"],
                "Vec" => vec!["Vec::new()"],
                "Duration" => vec!["::std::time::Duration::ZERO"],
                "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i32" | "i64" => vec!["0", "1"],
                "Result" => first_argument(&last.arguments).map(in_ok).unwrap_or_default(),
                _ => Vec::new(),
            }
        }
        Type::Reference(reference) if is_str(&reference.elem) => vec!["\"\""],
        Type::Tuple(tuple) if tuple.elems.is_empty() => vec!["()"],
        _ => Vec::new(),
    }
}

fn in_ok(kind: &Type) -> Vec<&'static str> {
    match results(kind).first() {
        Some(&"()") => vec!["Ok(())"],
        Some(&"true") => vec!["Ok(true)", "Ok(false)"],
        Some(&"None") => vec!["Ok(None)"],
        Some(&"Vec::new()") => vec!["Ok(Vec::new())"],
        Some(&"0") => vec!["Ok(0)", "Ok(1)"],
        _ => Vec::new(),
    }
}

fn first_argument(arguments: &PathArguments) -> Option<&Type> {
    let PathArguments::AngleBracketed(arguments) = arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(kind) => Some(kind),
        _ => None,
    }
}

fn is_str(kind: &Type) -> bool {
    matches!(kind, Type::Path(path) if path.path.is_ident("str"))
}

/// Returns whether a statement only names parameters, as in `let _ = (a, b);`.
fn names_only(stmt: &Stmt) -> bool {
    let Stmt::Local(Local { pat: Pat::Wild(_), init: Some(init), .. }) = stmt else { return false };
    match &*init.expr {
        Expr::Path(_) => true,
        Expr::Tuple(tuple) => tuple.elems.iter().all(|elem| matches!(elem, Expr::Path(_))),
        _ => false,
    }
}

fn expr_text(expr: &Expr) -> String {
    expr.to_token_stream().to_string().replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_differ_from_the_body() {
        let cases: &[(&str, &[&str])] = &[
            ("fn f() { g() }", &["()"]),
            ("fn f() -> bool { true }", &["false"]),
            ("fn f() -> Result<Option<u8>, E> { g() }", &["Ok(None)"]),
            ("fn f() -> &'static str { g() }", &["\"\""]),
            ("fn f() -> Machine { g() }", &[]),
            ("fn f(a: u8, b: u8) { let _ = (a, b); }", &[]),
            ("fn f(a: u8) -> Option<u8> { let _ = a; None }", &[]),
            ("fn f(a: u8) { let _ = g(a); }", &["()"]),
        ];
        for (source, expected) in cases {
            let function: syn::ItemFn = syn::parse_str(source).expect("the source is Rust");
            assert_eq!(
                &replaced_results(&function.sig.output, &function.block),
                expected,
                "{source}"
            );
        }
    }
}
