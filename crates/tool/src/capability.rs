//! The form of capabilities.

use crate::text::nearest;

/// Minimum similarity of a name to a known one to be treated as a typing error.
const MIN_SIMILARITY: f64 = 0.8;

/// The capabilities of the built-in tools, by name space. Other name spaces belong to the authors of tools.
const KNOWN: [(&str, &[&str]); 3] =
    [("fs", &["read", "write"]), ("network", &["outbound", "private"]), ("process", &["spawn"])];

/// Checks that a capability, or a pattern over capabilities, is meaningful: `fs:read`, `process:spawn`,
/// `network:outbound:api.example.com`, or a tool's own one, such as `db:write`.
///
/// ```
/// use backstop_tool::check_capability;
///
/// assert!(check_capability("fs:read:/data/**").is_ok());
/// assert!(check_capability("db:write").is_ok());
/// let why = check_capability("fs:raed:/data/**").unwrap_err();
/// assert_eq!(why, "there is no `fs:raed`; did you mean `fs:read`?");
/// ```
///
/// # Errors
///
/// The reason that it is not valid.
pub fn check_capability(text: &str) -> Result<(), String> {
    let form = || Err("a capability has the form `fs:read`".to_owned());
    if text.trim() != text || text.chars().any(char::is_control) {
        return form();
    }
    let mut parts = text.splitn(3, ':');
    let space = parts.next().unwrap_or_default();
    let (operation, rest) = (parts.next(), parts.next());
    if space.is_empty() || operation == Some("") || rest == Some("") {
        return form();
    }
    let is_pattern = |part: &str| part.contains(['*', '?', '[']);
    let known = KNOWN.iter().find(|(known, _)| *known == space);
    let Some((_, operations)) = known else {
        let mistyped = |(known, _): &&(&str, _)| is_mistyped(space, known);
        return match KNOWN.iter().find(mistyped) {
            Some((known, operations)) if !is_pattern(space) => {
                let near = with_operation(space, known, operations);
                Err(format!("there is no `{space}`; did you mean `{near}`?"))
            }
            _ => Ok(()),
        };
    };
    match operation {
        Some(operation) if !operations.contains(&operation) && !is_pattern(operation) => {
            let near = nearest(operation, operations.iter().copied()).unwrap_or_default();
            Err(format!("there is no `{space}:{operation}`; did you mean `{space}:{near}`?"))
        }
        _ => Ok(()),
    }
}

/// Adds the operation if it follows another separator than `:`, such as in `fs.read`.
fn with_operation(name: &str, space: &str, operations: &[&str]) -> String {
    let operation = name
        .split(['.', '/', '-', '_'])
        .nth(1)
        .and_then(|operation| nearest(operation, operations.iter().copied()));
    operation.map_or_else(|| space.to_owned(), |operation| format!("{space}:{operation}"))
}

fn is_mistyped(name: &str, known: &str) -> bool {
    let name = name.to_lowercase();
    let letters = |name: &str| {
        let mut letters: Vec<char> = name.chars().collect();
        letters.sort_unstable();
        letters
    };
    strsim::jaro_winkler(&name, known) >= MIN_SIMILARITY || letters(&name) == letters(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: Y1
    #[test]
    fn capabilities_that_name_nothing_are_refused() {
        for capability in [
            "fs",
            "fs:read",
            "fs:read:/a:b",
            "fs:*:/data/**",
            "*",
            "network:outbound:[::1]:80",
            "network:private",
            "network:private:::1",
            "process:spawn",
            "db:write",
            "billing:refund:eu",
        ] {
            assert_eq!(check_capability(capability), Ok(()), "{capability}");
        }
        for capability in [
            "",
            " ",
            ":",
            "fs:",
            "fs:read:",
            ":read",
            " fs:read",
            "fs:read ",
            "fs:re\nad",
            "fs:raed:/data",
            "fs:Read",
            "fs:reads:/x",
            "FS:read",
            "sf:read",
            "process:spwan",
            "proces:spawn",
            "network:outbond",
            "network:privat",
            "netwrok:outbound",
        ] {
            assert!(check_capability(capability).is_err(), "{capability:?}");
        }
        for (capability, near) in [("sf:read", "fs"), ("fs.raed:./x", "fs:read")] {
            let why = check_capability(capability).unwrap_err();
            assert!(why.ends_with(&format!("; did you mean `{near}`?")), "{why}");
        }
    }
}
