//! Checks what the time of day is used for.
//!
//! The time of day may be set at any moment, and other machines have another one. An interval that is measured with it
//! ends too early or never, and what is deleted or taken over by it may belong to a living process.
//!
//! Where it is read, it may only be recorded: it is the argument of a call that records it, or a comment that begins
//! with `time of day:` says on the line, or in the lines above, why it is sound. The same holds for the time between
//! two of them.

use std::collections::BTreeSet;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Expr, ExprCall, ExprMethodCall, ExprPath, Field, FnArg, ItemFn, ItemMod, Member, Pat,
    ReturnType, Signature, Type,
};

use crate::tidy::finding::Finding;
use crate::tidy::syntax::is_for_tests;
use crate::tidy::workspace::SourceFile;

/// Crates that own runs, take them over, delete rows, or measure intervals.
const CRATES: [&str; 10] = [
    "behaviors",
    "environment",
    "mcp",
    "mcp-server",
    "orchestrator",
    "react",
    "retention",
    "store-postgres",
    "store-sqlite",
    "worker",
];

/// Calls that record the time that they are given.
const RECORDING: [&str; 6] =
    ["decide", "new_run_id", "new_session_id", "Origin::new", "send", "stage"];

/// Types with a method `now` that is not the time of day: it advances with a monotonic clock, or is that of a record.
const STEADY: [&str; 3] = ["AnyJournal", "Machine", "RunClock"];

/// Start of a comment with the reason of an exception.
const REASON: &str = "// time of day: ";

/// Finds uses of the time of day other than its record.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    let measures = |name: &str| {
        let rest = file.path.strip_prefix("crates/").and_then(|path| path.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with("/src/") && !rest.contains("/tests/"))
    };
    if !CRATES.iter().any(|name| measures(name)) {
        return Vec::new();
    }
    let mut names = ClockNames::default();
    names.visit_file(&file.syntax);
    let mut uses = Uses { steady: names.list_steady(), found: Vec::new() };
    uses.visit_file(&file.syntax);
    let lines: Vec<&str> = file.text.lines().collect();
    let unreasoned = uses.found.into_iter().filter(|(line, _)| !has_reason(&lines, *line));
    unreasoned.map(|(line, what)| Finding::error(&file.path, line, what)).collect()
}

/// Returns whether a line, counted from 1, has a reason at its end or in the comment above it.
fn has_reason(lines: &[&str], line: usize) -> bool {
    let is_comment = |line: &&&str| line.trim_start().starts_with("//");
    let own = line.checked_sub(1).and_then(|place| lines.get(place));
    let above = lines.get(..line.saturating_sub(1)).unwrap_or_default();
    own.is_some_and(|line| line.contains(REASON))
        || above.iter().rev().take_while(is_comment).any(|line| line.contains(REASON))
}

/// ClockNames of fields, parameters and methods in a file, by whether their type has a steady `now`. The name of a field
/// begins with a dot, and that of a method ends with parentheses.
#[derive(Default)]
struct ClockNames {
    steady: BTreeSet<String>,
    others: BTreeSet<String>,
}

impl ClockNames {
    fn add(&mut self, name: String, ty: &Type) {
        match has_steady_type(ty) {
            true => self.steady.insert(name),
            false => self.others.insert(name),
        };
    }

    /// Returns the names that always have such a type.
    fn list_steady(self) -> BTreeSet<String> {
        self.steady.difference(&self.others).cloned().collect()
    }
}

impl<'ast> Visit<'ast> for ClockNames {
    fn visit_field(&mut self, field: &'ast Field) {
        if let Some(name) = &field.ident {
            self.add(format!(".{name}"), &field.ty);
            // A pattern takes the field out under its name.
            self.add(name.to_string(), &field.ty);
        }
        visit::visit_field(self, field);
    }

    fn visit_signature(&mut self, signature: &'ast Signature) {
        if let ReturnType::Type(_, ty) = &signature.output {
            self.add(format!("{}()", signature.ident), ty);
        }
        visit::visit_signature(self, signature);
    }

    fn visit_fn_arg(&mut self, argument: &'ast FnArg) {
        if let FnArg::Typed(argument) = argument
            && let Pat::Ident(name) = &*argument.pat
        {
            self.add(name.ident.to_string(), &argument.ty);
        }
        visit::visit_fn_arg(self, argument);
    }
}

fn has_steady_type(ty: &Type) -> bool {
    match ty {
        Type::Reference(reference) => has_steady_type(&reference.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|it| {
            let name = it.ident.to_string();
            STEADY.contains(&name.as_str())
        }),
        _ => false,
    }
}

/// Uses of the time of day in code that is not for tests, with their lines.
struct Uses {
    steady: BTreeSet<String>,
    found: Vec<(usize, &'static str)>,
}

impl Uses {
    /// Visits the arguments of a call, of which one that records may be the time of day itself.
    fn visit_arguments<'ast>(
        &mut self,
        records: bool,
        arguments: impl Iterator<Item = &'ast Expr>,
    ) {
        for argument in arguments {
            match argument {
                Expr::MethodCall(call) if records && is_reading(call) => {
                    self.visit_expr(&call.receiver);
                }
                other => self.visit_expr(other),
            }
        }
    }
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        let records = matches!(&*call.func, Expr::Path(path) if is_recording(path));
        self.visit_expr(&call.func);
        self.visit_arguments(records, call.args.iter());
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let line = call.method.span().start().line;
        let is_steady =
            || receiver_name(&call.receiver).is_some_and(|it| self.steady.contains(&it));
        if is_reading(call) && !is_steady() {
            let what = "the time of day may be set: measure with `Clock::monotonic`, let the clock of the store \
                decide, or say `// time of day: ` and why";
            self.found.push((line, what));
        }
        if call.method == "since" && call.args.len() == 1 {
            let what = "the time of day may be set between the two: measure with `Clock::monotonic`, or say \
                `// time of day: ` and why";
            self.found.push((line, what));
        }
        self.visit_expr(&call.receiver);
        let name = call.method.to_string();
        self.visit_arguments(RECORDING.contains(&name.as_str()), call.args.iter());
    }

    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        if names(path, "Clock::now") || names(path, "SystemClock::now") {
            self.found.push((path.span().start().line, "call `now` where it is recorded"));
        }
    }
}

fn is_reading(call: &ExprMethodCall) -> bool {
    call.method == "now" && call.args.is_empty()
}

fn is_recording(path: &ExprPath) -> bool {
    RECORDING.iter().any(|name| names(path, name))
}

/// Returns whether a path ends with these segments.
fn names(path: &ExprPath, wanted: &str) -> bool {
    let segments: Vec<String> = path.path.segments.iter().map(|it| it.ident.to_string()).collect();
    let wanted: Vec<&str> = wanted.split("::").collect();
    segments.ends_with(&wanted.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// Returns the name of a variable, a field or a method, as [`ClockNames`] has it.
fn receiver_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Field(field) => match &field.member {
            Member::Named(name) => Some(format!(".{name}")),
            Member::Unnamed(_) => None,
        },
        Expr::MethodCall(call) => Some(format!("{}()", call.method)),
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        Expr::Reference(reference) => receiver_name(&reference.expr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&SourceFile::new(path.to_owned(), text.to_owned()).unwrap())
            .into_iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn time_of_day_measures_nothing() {
        let cases: &[(&str, &[usize])] = &[
            (
                "fn f() {\n    let now = SystemClock.now();\n    let at = self.clock.now();\n}\n",
                &[2, 3],
            ),
            ("fn f() {\n    let now = clock_of().now();\n}\n", &[2]),
            ("fn time(&self) -> Timestamp {\n    self.0.clock().now()\n}\n", &[2]),
            ("fn f() {\n    let read = Clock::now;\n    x.map(SystemClock::now);\n}\n", &[2, 3]),
            ("fn f() {\n    sqlx::query(Q).bind(clock.now());\n}\n", &[2]),
            ("fn f() { g(later.since(earlier)); }\n", &[1]),
            ("fn f() { SystemClock.monotonic(); Cursor::now(); }\n", &[]),
            ("#[cfg(test)]\nmod tests {\n    fn f() { clock.now(); }\n}\n", &[]),
        ];
        for (text, found) in cases {
            assert_eq!(lines("crates/worker/src/rounds.rs", text), *found, "{text}");
            assert_eq!(lines("crates/store-sqlite/src/a/b.rs", text), *found, "{text}");
            assert_eq!(lines("crates/worker/tests/it/work.rs", text), [0; 0]);
            assert_eq!(lines("crates/cli/src/run.rs", text), [0; 0]);
        }
    }

    #[test]
    fn time_of_day_is_recorded() {
        let cases: &[(&str, &[usize])] = &[
            (
                "fn f() { writer.stage(&seed, self.clock.now(), None); new_run_id(clock.now()); }\n",
                &[],
            ),
            (
                "fn f() {\n    let origin = Origin::new(clock.now(), s);\n    Other::new(clock.now());\n}\n",
                &[3],
            ),
            (
                "fn f() {\n    log.send(later(clock.now()));\n    log.send(clock.now().after(d));\n}\n",
                &[2, 3],
            ),
        ];
        for (text, found) in cases {
            assert_eq!(lines("crates/react/src/run.rs", text), *found, "{text}");
        }
    }

    #[test]
    fn reason_stands_at_the_line() {
        let reasoned = "fn f() {\n    // time of day: it is shown.\n    let at = clock.now();\n    let other = clock.now();\n}\n";
        assert_eq!(lines("crates/mcp/src/a.rs", reasoned), [4]);
        let at_its_end =
            "fn f() {\n    clock.now(); // time of day: it is shown\n    clock.now();\n}\n";
        assert_eq!(lines("crates/mcp/src/a.rs", at_its_end), [3]);
    }

    #[test]
    fn clock_of_a_run_is_steady() {
        let uses = "impl A {\n    fn f(&self) { self.clock.now(); }\n    fn g(clock: &Arc<dyn Clock>) { clock.now(); }\n}\n";
        let cases: &[(&str, &[usize])] = &[
            ("struct A { clock: RunClock }\n", &[4]),
            ("struct A { clock: Arc<dyn Clock> }\n", &[3, 4]),
            ("struct A { clock: RunClock } struct B { clock: Arc<dyn Clock> }\n", &[3, 4]),
        ];
        for (fields, found) in cases {
            assert_eq!(
                lines("crates/react/src/a.rs", &format!("{fields}{uses}")),
                *found,
                "{fields}"
            );
        }
        let others = "fn f(time: &RunClock) { time.now(); }\nimpl A { fn machine(&self) -> &Machine { &self.0 } }\n\
            fn g(a: A) { a.machine().now(); a.clock().now(); }\n";
        assert_eq!(lines("crates/react/src/a.rs", others), [3]);
    }
}
