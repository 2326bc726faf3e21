//! Generated workflows.

use proptest::prelude::*;

/// The code of a workflow.
#[derive(Debug, Clone)]
pub(super) enum Plan {
    Step(Leaf),
    /// One after the other, each asked with the answer of the one before it.
    Sequence(Vec<Plan>),
    /// Side by side, until the first failure.
    Together(Vec<Plan>),
    /// Side by side; failures are a part of the answer.
    Collected(Vec<Plan>),
    /// A workflow of its own.
    Nested(Box<Plan>),
    /// Lines of steps without names side by side, each in a scope of its own.
    Lines(Vec<Vec<Leaf>>),
    /// Steps without names side by side, which share their numbers: all but one are refused.
    Unnamed(Vec<Leaf>),
    /// One operator over a list.
    Map(Leaf),
    /// One of two operators, chosen by code, or by an operator.
    Route {
        by_operator: bool,
        steps: [Leaf; 2],
    },
    /// An operator that is begun anew when it fails.
    Supervise(Leaf),
}

/// The operator of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaf {
    /// An agent whose tool acts.
    Payer,
    /// An agent without tools.
    Talker,
    /// Keeps no record, and acts.
    Plain,
    /// Keeps no record, and answers with a secret of the process.
    Secret,
    /// Takes no text.
    Picky,
    /// Fails, and may have acted.
    Lost,
    /// Fails at first, and did nothing.
    Away,
    /// No such operator exists.
    Missing,
    /// An agent whose tool waits for a person.
    Signer,
    /// An agent whose model is to be asked later.
    Parker,
}

impl Leaf {
    /// The leaves of the workflows whose records are compared with earlier ones.
    const FIRST: [Self; 8] = [
        Self::Payer,
        Self::Talker,
        Self::Plain,
        Self::Secret,
        Self::Picky,
        Self::Lost,
        Self::Away,
        Self::Missing,
    ];

    pub(super) const ALL: [Self; 10] = [
        Self::Payer,
        Self::Talker,
        Self::Plain,
        Self::Secret,
        Self::Picky,
        Self::Lost,
        Self::Away,
        Self::Missing,
        Self::Signer,
        Self::Parker,
    ];

    /// The operators that keep no record.
    pub(super) const UNRECORDED: [Self; 5] =
        [Self::Plain, Self::Secret, Self::Picky, Self::Lost, Self::Away];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Payer => "payer",
            Self::Talker => "talker",
            Self::Plain => "plain",
            Self::Secret => "secret",
            Self::Picky => "picky",
            Self::Lost => "lost",
            Self::Away => "away",
            Self::Missing => "missing",
            Self::Signer => "signer",
            Self::Parker => "parker",
        }
    }
}

impl Plan {
    /// Returns whether steps run at the same time.
    pub(super) fn is_parallel(&self) -> bool {
        match self {
            Self::Step(_) | Self::Route { .. } | Self::Supervise(_) => false,
            Self::Nested(plan) => plan.is_parallel(),
            Self::Sequence(plans) => plans.iter().any(Self::is_parallel),
            Self::Together(plans) | Self::Collected(plans) => {
                plans.len() > 1 || plans.iter().any(Self::is_parallel)
            }
            Self::Lines(lines) => lines.len() > 1,
            Self::Unnamed(steps) => steps.len() > 1,
            Self::Map(_) => true,
        }
    }

    /// Returns whether a model is to be asked later.
    pub(super) fn parks(&self) -> bool {
        match self {
            Self::Step(leaf) | Self::Map(leaf) | Self::Supervise(leaf) => *leaf == Leaf::Parker,
            Self::Nested(plan) => plan.parks(),
            Self::Sequence(plans) | Self::Together(plans) | Self::Collected(plans) => {
                plans.iter().any(Self::parks)
            }
            Self::Lines(lines) => lines.iter().any(|line| line.contains(&Leaf::Parker)),
            Self::Unnamed(steps) => steps.contains(&Leaf::Parker),
            Self::Route { steps, .. } => steps.contains(&Leaf::Parker),
        }
    }

    /// Returns the operators of a plan that are workflows of their own, each with its name and its plan; `at` is its
    /// place in the whole.
    pub(super) fn workflows(&self, at: &str, found: &mut Vec<(String, Self)>) {
        match self {
            Self::Nested(plan) => {
                let name = format!("{at}-n");
                found.push((name.clone(), (**plan).clone()));
                plan.workflows(&name, found);
            }
            Self::Sequence(plans) | Self::Together(plans) | Self::Collected(plans) => {
                for (index, plan) in plans.iter().enumerate() {
                    plan.workflows(&format!("{at}-{index}"), found);
                }
            }
            Self::Map(_) | Self::Route { .. } | Self::Supervise(_) => {
                found.push((format!("{at}-n"), self.clone()));
            }
            Self::Step(_) | Self::Lines(_) | Self::Unnamed(_) => {}
        }
    }
}

/// A workflow, and what it may use.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) plan: Plan,
    pub(super) model_calls: Option<u32>,
}

fn composed(leaf: BoxedStrategy<Plan>) -> impl Strategy<Value = Plan> {
    leaf.prop_recursive(3, 10, 3, |plan| {
        let some = || prop::collection::vec(plan.clone(), 1..4);
        prop_oneof![
            some().prop_map(Plan::Sequence),
            some().prop_map(Plan::Together),
            some().prop_map(Plan::Collected),
            plan.clone().prop_map(|plan| Plan::Nested(Box::new(plan))),
        ]
    })
}

fn limited(plan: impl Strategy<Value = Plan>) -> impl Strategy<Value = Case> {
    (plan, prop::option::weighted(0.4, 1..6_u32))
        .prop_map(|(plan, model_calls)| Case { plan, model_calls })
}

/// Draws workflows whose records are compared with earlier ones.
pub(super) fn first_cases() -> impl Strategy<Value = Case> {
    let leaf = prop::sample::select(Leaf::FIRST.to_vec()).prop_map(Plan::Step);
    limited(composed(leaf.boxed()))
}

/// Draws workflows of every kind.
pub(super) fn cases() -> impl Strategy<Value = Case> {
    let leaf = || prop::sample::select(Leaf::ALL.to_vec());
    // The operators of a combinator are known when it is built.
    let known = || leaf().prop_filter("it is known", |leaf| *leaf != Leaf::Missing);
    let line = prop::collection::vec(leaf(), 1..3);
    let step = prop_oneof![
        6 => leaf().prop_map(Plan::Step),
        1 => prop::collection::vec(line, 1..4).prop_map(Plan::Lines),
        1 => prop::collection::vec(leaf(), 1..4).prop_map(Plan::Unnamed),
        1 => known().prop_map(Plan::Map),
        1 => (any::<bool>(), known(), known())
            .prop_map(|(by_operator, first, second)| Plan::Route { by_operator, steps: [first, second] }),
        1 => known().prop_map(Plan::Supervise),
    ];
    limited(composed(step.boxed()))
}
