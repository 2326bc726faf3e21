//! Sites of a file where a mutant changes the behaviour of the code.
//!
//! Each site is rewritten so that one build contains all mutants of a crate: the code calls `crate::mutants::on(ID)`
//! and behaves as written unless that mutant is selected.

use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Arm, BinOp, Block, Expr, ExprBinary, ExprIf, ExprLit, ExprMatch, ExprRepeat, ExprUnary, File,
    ImplItemConst, ImplItemFn, Item, ItemFn, ItemImpl, Lit, Pat, PatGuard, Signature, Stmt,
    TraitItemConst, TraitItemFn, Type, UnOp,
};

use super::returns::replaced_results;
use crate::tidy::syntax::{attributes, is_for_tests};

/// Placeholder in an edit for the first number of its site; `{1}` is for the second.
const FIRST: &str = "{0}";

/// A site, with its mutants.
#[derive(Debug)]
pub(super) struct Site {
    /// The line, from 1.
    pub(super) line: usize,
    /// The change of each mutant, in the order of their numbers.
    pub(super) mutants: Vec<String>,
    edits: Vec<Edit>,
}

/// A change of the text.
#[derive(Debug)]
struct Edit {
    /// Offset of the first replaced byte.
    start: usize,
    /// Offset of the first byte after it; `start` for an insertion.
    end: usize,
    /// Order among edits at one offset: closing edits come first.
    rank: isize,
    text: String,
}

/// Returns the sites of a file, in the order of the visit.
pub(super) fn find(file: &File) -> Vec<Site> {
    let mut finder = Finder::default();
    finder.visit_file(file);
    finder.sites
}

/// Returns the text with each site rewritten; `first` returns the number of a site's first mutant, or `None` for a site
/// that stays unchanged.
pub(super) fn rewrite(
    source: &str,
    sites: &[Site],
    first: impl Fn(usize) -> Option<usize>,
) -> String {
    let mut edits: Vec<(&Edit, usize)> = Vec::new();
    for (index, site) in sites.iter().enumerate() {
        if let Some(first) = first(index) {
            edits.extend(site.edits.iter().map(|edit| (edit, first)));
        }
    }
    edits.sort_by_key(|(edit, _)| (edit.start, edit.rank));
    let mut text = String::with_capacity(source.len() * 2);
    let mut at = 0;
    for (edit, first) in edits {
        text.push_str(source.get(at..edit.start).unwrap_or_default());
        text.push_str(
            &edit.text.replace(FIRST, &first.to_string()).replace("{1}", &(first + 1).to_string()),
        );
        at = edit.end;
    }
    text.push_str(source.get(at..).unwrap_or_default());
    text
}

#[derive(Default)]
struct Finder {
    sites: Vec<Site>,
    /// Count of edits, so that of two that open at one offset the outer one comes first.
    met: isize,
}

impl Finder {
    fn site(&mut self, span: Span, mutants: &[&str], edits: Vec<Edit>) {
        let mutants = mutants.iter().map(|&mutant| mutant.to_owned()).collect();
        self.sites.push(Site { line: span.start().line, mutants, edits });
    }

    /// Returns the edits that insert text before and after a piece of code.
    fn around(&mut self, span: Span, before: &str, behind: &str) -> Vec<Edit> {
        self.met += 1;
        let range = span.byte_range();
        vec![insertion(range.start, self.met, before), insertion(range.end, -self.met, behind)]
    }

    /// Adds a site for an operand, which one mutant treats as true in `&&`, or as false in `||`.
    fn operand(&mut self, expr: &Expr, operator: &BinOp) {
        let same =
            |inner: &BinOp| std::mem::discriminant(inner) == std::mem::discriminant(operator);
        if holds_let(expr) || matches!(expr, Expr::Binary(inner) if same(&inner.op)) {
            return;
        }
        let (before, what) = if matches!(operator, BinOp::And(_)) {
            ("(crate::mutants::on({0}) || ", "true")
        } else {
            ("(!crate::mutants::on({0}) && ", "false")
        };
        let edits = self.around(expr.span(), before, ")");
        self.site(expr.span(), &[&format!("`{}` is {what}", code(expr))], edits);
    }

    fn negation(&mut self, expr: &Expr) {
        let edits = self.around(expr.span(), "(crate::mutants::on({0}) != (", "))");
        self.site(expr.span(), &[&format!("`{}` is negated", code(expr))], edits);
    }

    fn comparison(&mut self, expr: &ExprBinary) {
        let (function, other) = match expr.op {
            BinOp::Lt(_) => ("less", "<="),
            BinOp::Le(_) => ("at_most", "<"),
            BinOp::Gt(_) => ("more", ">="),
            BinOp::Ge(_) => ("at_least", ">"),
            _ => return,
        };
        let mut edits =
            self.around(expr.span(), &format!("crate::mutants::{function}({{0}}, &("), "))");
        let operator = expr.op.span().byte_range();
        edits.push(Edit {
            start: operator.start,
            end: operator.end,
            rank: 0,
            text: "), &(".to_owned(),
        });
        let written = code(&Expr::Binary(expr.clone()));
        self.site(
            expr.span(),
            &[&format!("`{written}` compares by `{other}`"), &format!("`{written}` is negated")],
            edits,
        );
    }

    fn arithmetic(&mut self, expr: &ExprBinary) {
        let other = match expr.op {
            BinOp::Add(_) => "-",
            BinOp::Sub(_) => "+",
            BinOp::Mul(_) => "/",
            BinOp::Div(_) => "*",
            _ => return,
        };
        let (left, right) = (code(&expr.left), code(&expr.right));
        let before = format!("(if crate::mutants::on({{0}}) {{ {left} {other} {right} }} else {{ ");
        let edits = self.around(expr.span(), &before, " })");
        let written = code(&Expr::Binary(expr.clone()));
        self.site(expr.span(), &[&format!("`{written}` uses `{other}`")], edits);
    }

    /// Adds a site for a body, in which a mutant returns an empty result at once.
    fn body(&mut self, signature: &Signature, block: &Block) {
        let mut mutants = Vec::new();
        let mut text = String::new();
        for result in replaced_results(&signature.output, block) {
            let number = mutants.len();
            if number > 1 {
                break;
            }
            text.push_str(&format!(" if crate::mutants::on({{{number}}}) {{ return {result}; }}"));
            mutants.push(format!("`{}` returns `{result}` at once", signature.ident));
        }
        if mutants.is_empty() || block.stmts.is_empty() {
            return;
        }
        self.met += 1;
        let edit = insertion(block.brace_token.span.open().byte_range().end, self.met, &text);
        let mutants: Vec<&str> = mutants.iter().map(String::as_str).collect();
        self.site(signature.ident.span(), &mutants, vec![edit]);
    }

    fn arm(&mut self, arm: &Arm, is_before_rest: bool) {
        match &arm.pat {
            Pat::Guard(PatGuard { guard, .. }) if !holds_let(guard) => {
                let before = "!crate::mutants::on({1}) && (crate::mutants::on({0}) || (";
                let edits = self.around(guard.span(), before, "))");
                let written = code(guard);
                self.site(
                    guard.span(),
                    &[
                        &format!("guard `{written}` is true"),
                        &format!("guard `{written}` is false"),
                    ],
                    edits,
                );
            }
            Pat::Guard(_) => {}
            pattern if is_before_rest => {
                self.met += 1;
                let end = pattern.span().byte_range().end;
                let edit = insertion(end, self.met, " if !crate::mutants::on({0})");
                let written = pattern.to_token_stream().to_string();
                self.site(pattern.span(), &[&format!("arm `{written}` is left out")], vec![edit]);
            }
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        let is_left_out = matches!(item, Item::Const(_) | Item::Static(_) | Item::Macro(_));
        if !is_left_out && !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let is_debug = item.trait_.as_ref().is_some_and(|(path, _)| {
            path.segments.last().is_some_and(|last| last.ident == "Debug")
        });
        if !is_debug {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_impl_item_const(&mut self, _: &'ast ImplItemConst) {}

    fn visit_trait_item_const(&mut self, _: &'ast TraitItemConst) {}

    fn visit_pat(&mut self, pattern: &'ast Pat) {
        if let Pat::Guard(pattern) = pattern {
            self.visit_expr(&pattern.guard);
        }
    }

    fn visit_type(&mut self, _: &'ast Type) {}

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if item.sig.constness.is_none() {
            self.body(&item.sig, &item.block);
            self.visit_block(&item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if item.sig.constness.is_none() && !is_for_tests(&item.attrs) {
            self.body(&item.sig, &item.block);
            self.visit_block(&item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(&item.sig, block);
            self.visit_block(block);
        }
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, Some(_)) = stmt
            && is_call(expr)
        {
            let edits = self.around(stmt.span(), "if !crate::mutants::on({0}) { ", " }");
            self.site(stmt.span(), &[&format!("`{}` is left out", code(expr))], edits);
        }
        visit::visit_stmt(self, stmt);
    }

    fn visit_expr_binary(&mut self, expr: &'ast ExprBinary) {
        match expr.op {
            BinOp::And(_) | BinOp::Or(_) => {
                self.operand(&expr.left, &expr.op);
                self.operand(&expr.right, &expr.op);
            }
            BinOp::Eq(_) | BinOp::Ne(_) => self.negation(&Expr::Binary(expr.clone())),
            BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_) => self.comparison(expr),
            _ if is_plain(&expr.left) && is_plain(&expr.right) => {
                self.arithmetic(expr);
                return;
            }
            _ => {}
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast ExprUnary) {
        if matches!(expr.op, UnOp::Not(_)) {
            self.negation(&Expr::Unary(expr.clone()));
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_if(&mut self, expr: &'ast ExprIf) {
        let names_a_value = matches!(
            &*expr.cond,
            Expr::Path(_) | Expr::Field(_) | Expr::MethodCall(_) | Expr::Call(_) | Expr::Macro(_)
        );
        if names_a_value {
            self.negation(&expr.cond);
        }
        visit::visit_expr_if(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'ast ExprMatch) {
        let is_rest = |arm: &Arm| matches!(arm.pat, Pat::Wild(_));
        let has_rest = expr.arms.last().is_some_and(is_rest);
        for arm in &expr.arms {
            self.arm(arm, has_rest && !is_rest(arm));
        }
        visit::visit_expr_match(self, expr);
    }

    fn visit_expr_repeat(&mut self, expr: &'ast ExprRepeat) {
        self.visit_expr(&expr.expr);
    }

    fn visit_expr_lit(&mut self, expr: &'ast ExprLit) {
        if let Lit::Int(number) = &expr.lit
            && number.suffix().is_empty()
            && let Ok(value) = number.base10_parse::<u64>()
        {
            let before = format!("(if crate::mutants::on({{0}}) {{ {} }} else {{ ", value + 1);
            let edits = self.around(expr.span(), &before, " })");
            self.site(expr.span(), &[&format!("`{value}` is {}", value + 1)], edits);
        }
    }
}

fn insertion(at: usize, rank: isize, text: &str) -> Edit {
    Edit { start: at, end: at, rank, text: text.to_owned() }
}

/// Returns code as one line.
fn code(expr: &Expr) -> String {
    expr.to_token_stream().to_string()
}

/// Returns whether an expression contains `let`, so that no function call can wrap it.
fn holds_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(expr) => holds_let(&expr.left) || holds_let(&expr.right),
        _ => false,
    }
}

/// Returns whether a statement has an effect that is lost without it.
fn is_call(expr: &Expr) -> bool {
    match expr {
        Expr::Assign(_) | Expr::Call(_) | Expr::MethodCall(_) => true,
        Expr::Await(expr) => is_call(&expr.base),
        Expr::Try(expr) => is_call(&expr.expr),
        Expr::Binary(expr) => {
            matches!(expr.op, BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::BitOrAssign(_))
        }
        _ => false,
    }
}

/// Returns whether an operand can be duplicated, and contains no site of its own.
fn is_plain(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) => true,
        Expr::Lit(lit) => matches!(lit.lit, Lit::Int(_)),
        Expr::Field(expr) => is_plain(&expr.base),
        Expr::MethodCall(call) => is_plain(&call.receiver) && call.args.iter().all(is_plain),
        Expr::Reference(expr) => is_plain(&expr.expr),
        Expr::Unary(expr) => matches!(expr.op, UnOp::Deref(_)) && is_plain(&expr.expr),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutated(source: &str) -> (String, usize) {
        let sites = find(&syn::parse_file(source).expect("the source is Rust"));
        let mutants = sites.iter().map(|site| site.mutants.len()).sum();
        let mut first = 1;
        let numbers: Vec<usize> = sites
            .iter()
            .map(|site| {
                first += site.mutants.len();
                first - site.mutants.len()
            })
            .collect();
        (rewrite(source, &sites, |index| numbers.get(index).copied()), mutants)
    }

    #[test]
    fn each_kind_of_place_is_rewritten() {
        let cases = [
            ("fn f() { a && !b; }", 4),
            ("fn f() { if x < 3 { g(); } }", 5),
            ("fn f(x: u8) -> bool { match x { 1 if y => z, 2 => w, _ => v } }", 5),
            ("fn f() -> Option<u8> { Some(a + b.c()) }", 2),
            ("fn f() -> u64 { x == 7 || (y && z) }", 8),
        ];
        for (source, count) in cases {
            let (text, mutants) = mutated(source);
            assert!(syn::parse_file(&text).is_ok(), "{source}: {text}");
            assert_eq!(mutants, count, "{source}: {text}");
        }
    }

    #[test]
    fn tests_constants_and_patterns_are_left_alone() {
        let source =
            "const A: u8 = 1; const fn f() -> u8 { 1 } #[cfg(test)] mod t { fn g() { h(); } }";
        assert_eq!(mutated(source), (source.to_owned(), 0));
    }

    #[test]
    fn nested_places_keep_their_order() {
        let (text, _) = mutated("fn f(a: u8) -> usize { g(a == 1) }");
        assert!(
            text.contains(
                "g((crate::mutants::on(3) != (a == (if crate::mutants::on(4) { 2 } else { 1 }))))"
            ),
            "{text}"
        );
    }
}
