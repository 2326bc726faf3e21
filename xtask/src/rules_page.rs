//! `cargo xtask rules`: a page that lists the scenarios and tests that hold each rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use crate::error::XtaskError;
use crate::page;

const PAGE: &str = "target/rules.md";

const INTRO: &str = "\
<!-- Written by `cargo xtask rules` from the `Spec:` lines of scenarios and tests. -->

# Rules

What Backstop promises, rule by rule, and what holds each promise: scenarios, which are
the best way to see a rule at work, and tests. `cargo xtask ci` fails when a rule below has neither.
";

/// Each rule that needs a scenario or a test, with its promise in one line.
#[rustfmt::skip]
const RULES: &[(&str, &str)] = &[
    ("E1", "layer0 has one error enum per protocol: operator, orchestrator, state, environment."),
    ("E2", "A provider's failure is one of a closed set; each says whether trying again can help."),
    ("E3", "A tool's failure is one of a closed set, with the author's own code and retry hint."),
    ("E4", "A run fails for few reasons; tools, memory, policy and events are never one of them."),
    ("E5", "Errors convert upward and lose no cause on the way."),
    ("E6", "Every error states a code, whether to retry and whether it may have acted."),
    ("E7", "An error is one line and never repeats its cause."),
    ("E8", "Retries that gave up wrap the last error and keep its code."),
    ("E9", "Codes are a closed catalogue; each is brought about somewhere."),
    ("E10", "No secret is printed, stored or logged."),
    ("E11", "Nothing from outside causes a panic; a panic in user code is that part's failure."),
    ("E12", "A caller's mistakes have a category, a reason and a hint."),
    ("E13", "A failure has one text for record, live error, trace and page; nothing decides by it."),
    ("E14", "A failure says whether another endpoint may do better, and whether it speaks against this one."),
    ("R1", "One policy asks the error itself whether to retry; no code or text is compared."),
    ("R2", "Retries have safe defaults: few attempts, jitter that differs, a total deadline."),
    ("R3", "`Retry-After` is a floor; one that is too long stops at once."),
    ("R4", "A retry is refused by class, effect, deadline, attempts and budget, in this order."),
    ("R5", "Retries are at most a fifth of an endpoint's calls, plus a small reserve."),
    ("R6", "A retry after the first token is announced before the next attempt's first token."),
    ("R7", "A circuit breaker per endpoint, and fallback to the next provider."),
    ("R8", "Every attempt is an event, and its tokens count."),
    ("R9", "One place retries; layers around it do not multiply attempts."),
    ("R10", "Retries are tested through the real dispatcher and HTTP on loopback."),
    ("R11", "One policy decides what follows an attempt, in a run and in the layers."),
    ("P1", "A provider returns a whole response or streams it, with usage and stop reason."),
    ("P2", "Six protocols, each classified by status, headers and body."),
    ("P3", "A stream without its end marker or finish reason is truncated, never a success."),
    ("P4", "An error inside a 200 is classified as if it had come with its status."),
    ("P5", "Rate, quota and ramp are told apart before anything retries."),
    ("P6", "A context overflow is its own class in every provider."),
    ("P7", "Bytes may be split anywhere; malformed arguments go back to the model."),
    ("P8", "Connecting, the first byte, silence and the whole attempt have timeouts."),
    ("P9", "Stop reasons map without loss; a cut answer is incomplete, never complete."),
    ("P10", "Scripted and recorded providers serve tests and first runs."),
    ("P11", "A switch denies every real request of a test."),
    ("P12", "A setting that a provider lacks is refused when it is built."),
    ("T1", "A tool says what it needs, and knows run, call, deadline, cancellation and app state."),
    ("T2", "A call is gated, found, checked, allowed, approved, observed, logged and run, in this order."),
    ("T3", "A failed call is one bounded sentence the model can act on."),
    ("T4", "The next request contains the failure, marked as one."),
    ("T5", "The model can try other arguments, another tool, or explain."),
    ("T6", "A batch runs concurrently, answers in call order, and no call stops its siblings."),
    ("T7", "A tool that takes too long is stopped; what it says later is discarded."),
    ("T8", "A tool that says when to come back is waited for by the runtime."),
    ("T9", "A call that keeps failing the same way is not run again."),
    ("T10", "Large output goes to the result store; declared output is checked."),
    ("T11", "An async function becomes a tool."),
    ("T13", "The tool list never changes because of an error."),
    ("T14", "A call of unknown outcome is settled by its tool or by a person, and never made twice."),
    ("T16", "What an argument names is done once, whichever run asks for it."),
    ("T15", "Tool names are checked when the agent is built, and mapped alike at every start."),
    ("S1", "A stored error has session, run, call, tool, codes, raw text, summary and count."),
    ("S2", "Error ids are sortable, can be searched for, and never lose an error."),
    ("S3", "The raw error is valid JSON and comes out as it went in."),
    ("S4", "A summary is the first line that means something, at most 100 characters."),
    ("S5", "The model reads a summary, an id, and how to read more."),
    ("S6", "A failing error store shortens texts and never fails a run."),
    ("S7", "`get_error_detail` is there exactly with a store, and reads page by page."),
    ("S8", "Repeats of an error are one row with a count."),
    ("S9", "Secrets are taken out before anything is stored or summarised."),
    ("S10", "Old errors are pruned in the background."),
    ("S11", "Errors survive a restart."),
    ("S12", "Concurrent stores share a transaction; an id that was returned is durable."),
    ("S13", "Storing and reading an error is traced."),
    ("S14", "People list, read, prune and count stored errors."),
    ("L1", "Above a size the model gets a preview and an id."),
    ("L2", "What is referred to can be read, or says that it expired."),
    ("M1", "Memory that fails is a warning; the run goes on without it."),
    ("M7", "A session's next run begins with the transcript of the run before it."),
    ("V1", "Subscribers change nothing; a slow one is told what it missed."),
    ("H1", "Gates may stop a run or skip a call; observers look on."),
    ("H2", "A failing hook is a warning, unless it must not fail."),
    ("Y1", "What is not granted is denied, and the answer says what was missing."),
    ("A1", "A call that needs approval waits for a person, bound to the arguments shown."),
    ("A2", "A denial reaches the model with its reason and holds for the run."),
    ("A3", "An approval may ask for data, which is held against a schema."),
    ("A4", "An approval may expire, be for certain people, and be given with other arguments."),
    ("G1", "At most so many model calls."),
    ("G2", "The same batch again and again is a loop."),
    ("G3", "The same words again and again, and nothing new, is stagnation."),
    ("G4", "A batch that is too large is refused whole."),
    ("G5", "Guards are checked in one order before anything runs, with their evidence."),
    ("G6", "An empty answer is asked again once and never a success."),
    ("B1", "Calls, executions, tokens, cost, time, events and depth have budgets."),
    ("B2", "A used-up budget stops the run once, with its work kept."),
    ("B3", "Time and cancellation interrupt what is in flight; every call is answered."),
    ("B4", "What runs may spend together in a day or a month is kept across processes."),
    ("D1", "Every event is chained to the one before; an edit, removal or move is found at its seq."),
    ("D2", "What happened and what was decided is durable before anything is done."),
    ("D3", "Durability is chosen: memory, normal or full."),
    ("D4", "State is a fold of the log; a status costs the same however long the run is."),
    ("D5", "A run killed at any append is resumed; what was done is not done again."),
    ("D6", "A replay runs nothing, and names the first event that differs."),
    ("D7", "A fork copies a run up to an event and leaves its parent alone."),
    ("D8", "A run has one writer; a stale one is refused before it acts."),
    ("D9", "A step costs the same however long the history is."),
    ("D10", "A trace has one line per event, live and from disk alike, and a page."),
    ("D11", "A record is replayed by the rules it was written with."),
    ("D12", "A run that failed or was stopped is opened again where it ended, in the same record."),
    ("D13", "A record can be verified, by a program of another language too."),
    ("D14", "A run's stream has every event of it, and its end as the last item."),
    ("D15", "Runs are filed under labels, and records are carried from store to store."),
    ("X1", "A pattern says which events are wanted; what it misspells is named with column and nearest name."),
    ("X2", "A log can be followed, and is delivered to behaviours: every event once and in order, across crashes."),
    ("X3", "A behaviour that fails, panics or hangs leaves the others alone; that it failed is delivered once; it can be made again."),
    ("X4", "What behaviours did is a record of its own, in segments, chained as that of a run, and pruned whole."),
    ("X5", "A behaviour is not shown what it caused; a chain of causes ends."),
    ("X6", "A behaviour dispatches, signals, reopens and keeps state, each under a grant of its host."),
    ("X7", "A pack brings tools, hooks, behaviours, grants and prompts together, once; a clash names both."),
    ("X8", "Behaviours of an agent file tell a command or a URL, while a run goes on or by `watch`; they need grants."),
    ("N1", "An environment states what a program reaches and uses, and gives it credentials by reference."),
    ("N2", "The kernel enforces it; what cannot be enforced is refused, or recorded with `best_effort`."),
    ("N3", "Each escape is tried; what broke a wall reaches the model with its code."),
    ("N4", "A command tool gets a process group, named variables and bounded output, and no wall."),
    ("O1", "Operators and orchestrators are object-safe: dispatch one or many, signal, query."),
    ("O2", "An agent is an operator; budgets are the tree's, waiting rises, nothing is left behind."),
    ("O3", "A dispatch is recorded before it starts and before it is answered; a crash in between loses nothing."),
    ("O4", "Signals and queries go by the id of the run; what is refused before its start has codes of its own."),
    ("O5", "An operator that failed goes on where it failed; nothing that happened is repeated."),
    ("O6", "Workflows are operators made of operators; a step that is recorded is not done again."),
    ("K1", "Values outlive runs, by scope and key; a conditional write says which version it found."),
    ("K2", "What runs came to is remembered in a store, the best matches first."),
    ("Q1", "Tools of MCP servers are named and granted the same on every start, in every revision of the protocol."),
    ("Q2", "Each fault of an MCP server has one text, code, retry and effect; after it the next call works."),
    ("Q3", "Nothing an MCP server does is waited for, or held, without a bound."),
    ("Q4", "A tool of an MCP server that cannot be used is left out with a warning; the others stay."),
    ("Q5", "A dead MCP server is started again once for all; a call is sent again only by the operator's word."),
    ("Q6", "A run keeps to the tools it was given; what an MCP server lists otherwise later is recorded."),
    ("Q7", "What an MCP server says of its tools grants nothing; it sees what it is given, and shows no secret."),
    ("Q8", "What an MCP tool returns becomes text or checked JSON."),
    ("Q9", "Progress, cancelling, roots, logins and declined requests of MCP servers."),
    ("Q10", "Agents are tools of an MCP server; what failed or was cut says so, and a run can be asked for later."),
    ("Q11", "The official MCP servers work."),
    ("Ob1", "A trace parent comes in and is kept with the run."),
    ("W2", "A page is one file that loads nothing."),
    ("W3", "A reader that follows a run misses no event and repeats none."),
    ("W7", "`backstop chat` is a session in the terminal."),
    ("W8", "`init`, `check` and `doctor` bring a first agent to run and say what to mend."),
    ("J1", "A run reaches the world through one journal, which may be a durable engine's."),
    ("J2", "PostgreSQL is a full store: no append is lost or written twice, and an overtaken process writes nothing."),
    ("J2w", "Workers share the runs of a database, and heal themselves"),
    ("C1", "`backstop run` shows progress on a terminal, plain lines in a pipe, the result on stdout."),
    ("C2", "Runs are listed, traced, resumed, replayed, forked, approved and cancelled by command."),
    ("C3", "Exit codes tell how a command ended."),
    ("C4", "A store URL that is none is refused with the accepted forms."),
    ("C5", "An unknown key is named with its line and the nearest known one."),
    ("C6", "`backstop rehearse` runs scenario files on the real runtime."),
];

/// The places that hold a rule: files below the root, with the name of the test if there is one.
type Held = BTreeMap<String, Vec<(String, String)>>;

/// Beginning and end of lists of trials: those of a suite, and those from which a macro makes tests.
const TRIALS: &[(&str, char)] = &[("checks![", ']'), ("_suite! {", '}')];

/// Writes the page.
///
/// # Errors
///
/// [`XtaskError::File`], [`XtaskError::RulesOpen`] if nothing holds a rule, [`XtaskError::RulesUnknown`] if a `Spec:`
/// line names no rule, [`XtaskError::RulesMisplaced`] if one is not about a test.
pub(crate) fn write(root: &Path) -> Result<(), XtaskError> {
    page::write(root, PAGE, &text(&held(root)?)?)
}

/// Checks that each rule is held, and that each `Spec:` line is about a test and names a rule.
///
/// # Errors
///
/// As [`write()`].
pub(crate) fn check(root: &Path) -> Result<(), XtaskError> {
    text(&held(root)?).map(drop)
}

fn text(held: &Held) -> Result<String, XtaskError> {
    let open: Vec<&str> =
        RULES.iter().map(|(id, _)| *id).filter(|id| !held.contains_key(*id)).collect();
    if !open.is_empty() {
        return Err(XtaskError::RulesOpen { rules: open.join(", ") });
    }
    let is_known = |id: &str| RULES.iter().any(|(known, _)| *known == id);
    let unknown = held.iter().filter(|(id, _)| !is_known(id));
    let unknown: Vec<String> = unknown
        .flat_map(|(id, places)| places.iter().map(move |(file, _)| format!("`{id}` in {file}")))
        .collect();
    if !unknown.is_empty() {
        return Err(XtaskError::RulesUnknown { places: unknown.join(", ") });
    }
    let mut text = String::from(INTRO);
    for (id, promise) in RULES {
        let _infallible = write!(text, "\n## {id}\n\n{promise}\n\n");
        // Scenarios come first, because they are easier to read.
        let mut places = held.get(*id).cloned().unwrap_or_default();
        places.sort_by_key(|(file, _)| !file.ends_with(".toml"));
        for (file, test) in &places {
            let name = match test.as_str() {
                "" => file.rsplit('/').next().unwrap_or(file).trim_end_matches(".toml"),
                test => test,
            };
            let _infallible = writeln!(text, "- [`{name}`](../{file})");
        }
    }
    Ok(text)
}

/// Reads the `Spec:` lines of scenarios and tests.
fn held(root: &Path) -> Result<Held, XtaskError> {
    let mut files = Vec::new();
    for folder in ["tests", "crates"] {
        page::files_below(&root.join(folder), &mut files)?;
    }
    files.retain(|path| path.extension().is_some_and(|ending| ending == "rs" || ending == "toml"));
    files.sort();
    let mut read = Vec::with_capacity(files.len());
    for path in files {
        let file = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        read.push((file, page::read(&path)?));
    }
    let code = read.iter().filter(|(file, _)| file.ends_with(".rs"));
    let trials: BTreeSet<&str> = code.flat_map(|(_, text)| trials_of(text)).collect();
    let (mut held, mut misplaced) = (Held::new(), Vec::new());
    for (file, text) in &read {
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(rules) = rules_of(line) else { continue };
            let test = match file.ends_with(".rs") {
                true => test_after(&lines[index..], &trials),
                false => Some(String::new()),
            };
            let Some(test) = test else {
                misplaced.push(format!("{file}:{}", index + 1));
                continue;
            };
            for rule in rules {
                let places = held.entry(rule.to_owned()).or_default();
                let place = (file.clone(), test.clone());
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
    }
    match misplaced.is_empty() {
        true => Ok(held),
        false => Err(XtaskError::RulesMisplaced { places: misplaced.join(", ") }),
    }
}

/// Returns the names in lists of trials.
fn trials_of(text: &str) -> Vec<&str> {
    let lists = TRIALS.iter().flat_map(|(begin, end)| {
        text.split(begin).skip(1).filter_map(|list| list.split(*end).next())
    });
    let names = lists.flat_map(|list| list.split([',', ' ', '\n']));
    names.filter_map(|name| name.rsplit("::").next()).filter(|name| is_name(name)).collect()
}

/// Returns the rules that a comment line names.
fn rules_of(line: &str) -> Option<Vec<&str>> {
    let comment = line.trim_start();
    let comment = ["///", "//!", "#"].iter().find_map(|mark| comment.strip_prefix(mark))?;
    let (_, named) = comment.split_once("Spec: ")?;
    let named = named.split_once(". ").map_or(named, |(rules, _)| rules);
    Some(named.split(',').map(|rule| rule.trim().trim_end_matches('.')).collect())
}

/// Returns the name of the test that a comment line is about: a test function, a trial of a suite, or the test that a
/// macro makes of the name that follows.
fn test_after(lines: &[&str], trials: &BTreeSet<&str>) -> Option<String> {
    if lines.first()?.trim_start().starts_with("//!") {
        return None;
    }
    let is_about_it = |line: &&str| line.starts_with("//") || line.starts_with('#');
    let mut lines = lines.iter().map(|line| line.trim());
    let is_test = |line: &str| line.starts_with("#[test") || line.contains("::test");
    let mut is_marked = false;
    let next = lines.find(|line| {
        is_marked |= line.starts_with('#') && is_test(line);
        !is_about_it(line)
    })?;
    if is_name(next) {
        return Some(next.to_owned());
    }
    let (_, declared) = next.split_once("fn ")?;
    let name = declared.split(|c: char| !is_in_name(c)).next()?;
    (is_marked || trials.contains(name)).then(|| name.to_owned())
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_in_name)
}

const fn is_in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_held() {
        if let Err(error) = check(crate::root()) {
            panic!("{error}: {}", error.hint().unwrap_or_default());
        }
    }

    #[test]
    fn spec_lines_are_read_wherever_they_stand() {
        assert_eq!(rules_of("/// Spec: T3, S4"), Some(vec!["T3", "S4"]));
        assert_eq!(rules_of("    /// Spec: A1, E11. Real questions."), Some(vec!["A1", "E11"]));
        assert_eq!(rules_of("# Spec: H1"), Some(vec!["H1"]));
        assert_eq!(rules_of("let x = \"Spec: H1\";"), None);
    }

    #[test]
    fn only_tests_hold_a_rule() {
        let list = "checks![\n    it_holds, said::so_it_is,\n]; b_suite! { $a =>\n  one_more\n}";
        let trials: BTreeSet<&str> = trials_of(list).into_iter().collect();
        assert_eq!(Vec::from_iter(&trials), [&"it_holds", &"one_more", &"so_it_is"]);
        for (lines, test) in [
            (&["/// Spec: A1", "#[test]", "async fn it_is() {"][..], Some("it_is")),
            (&["  /// Spec: A1", "  #[tokio::test]", "  async fn it_is() {"], Some("it_is")),
            (
                &["    /// Spec: T3", "    tools_not_found", "    fn other() {"],
                Some("tools_not_found"),
            ),
            (&["/// Spec: P1", "pub(super) async fn so_it_is(wire: Wire) {"], Some("so_it_is")),
            (&["/// Spec: P1", "fn helps(wire: Wire) {", "#[test]", "fn it_is() {"], None),
            (&["//! Spec: P1", "", "#[test]", "fn it_is() {"], None),
            (&["/// Spec: P1"], None),
        ] {
            assert_eq!(test_after(lines, &trials).as_deref(), test, "{lines:?}");
        }
    }

    #[test]
    fn a_rule_that_nothing_holds_is_named() {
        let error = text(&Held::new()).unwrap_err();
        assert!(error.to_string().contains("E1, E2"), "{error}");
    }

    #[test]
    fn a_rule_that_there_is_not_is_named() {
        let place = |file: &str| vec![(file.to_owned(), String::new())];
        let mut held: Held =
            RULES.iter().map(|(id, _)| ((*id).to_owned(), place("a.rs"))).collect();
        assert!(text(&held).is_ok());
        held.insert("T99".to_owned(), place("b.rs"));
        let error = text(&held).unwrap_err();
        assert_eq!(error.to_string(), "no rule is named `T99` in b.rs");
    }
}
