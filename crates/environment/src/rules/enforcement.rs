//! The enforcement of each kind of rule.

/// A kind of rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleKind {
    Cpu,
    FileSize,
    Files,
    Memory,
    Network,
    Processes,
    Wall,
}

/// The degree to which a rule is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enforcement {
    Full,
    /// Some of what the rule forbids is refused.
    Partial,
    None,
}
