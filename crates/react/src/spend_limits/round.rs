//! The additions that are written to an account at once.

use layer0::error::StateError;
use layer0::failure::Chain;
use tokio::sync::oneshot;

/// The amount used of an account that has nothing left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UsedUp(pub(super) u64);

/// A reservation that waits for its answer.
pub(super) struct Reservation {
    pub(super) may_cost: u64,
    pub(super) max: u64,
    pub(super) answer: oneshot::Sender<Result<Result<(), UsedUp>, StateError>>,
}

/// Changes of an account, in the order in which they were asked for.
#[derive(Default)]
pub(super) struct AccountRound {
    pub(super) reservations: Vec<Reservation>,
    /// The sum of the settlements.
    pub(super) owed: i64,
    pub(super) settlements: Vec<oneshot::Sender<Result<(), StateError>>>,
}

/// The part of a round that fits an account.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AdmittedPart {
    /// The number of admitted reservations.
    pub(super) admitted: usize,
    pub(super) amount: i64,
    /// The most that may be stored for all of them to be admitted.
    pub(super) bound: Option<u64>,
    /// The places of the others.
    pub(super) refused: Vec<(usize, UsedUp)>,
}

impl AdmittedPart {
    /// Returns whether there is nothing to write.
    pub(super) const fn is_empty(&self) -> bool {
        self.admitted == 0 && self.amount == 0
    }
}

impl AccountRound {
    pub(super) fn is_empty(&self) -> bool {
        self.owed == 0 && self.reservations.is_empty() && self.settlements.is_empty()
    }

    /// Returns whether nobody waits for it.
    pub(super) fn is_owed_alone(&self) -> bool {
        self.owed != 0 && self.reservations.is_empty() && self.settlements.is_empty()
    }

    /// Decides about the reservations one after the other, for the number that is stored.
    pub(super) fn admit(&self, stored: u64) -> AdmittedPart {
        let mut admission = AdmittedPart { amount: self.owed, ..AdmittedPart::default() };
        for (place, Reservation { may_cost, max, .. }) in self.reservations.iter().enumerate() {
            let used = stored.saturating_add_signed(admission.amount);
            if used >= *max {
                admission.refused.push((place, UsedUp(used)));
                continue;
            }
            let bound = (max - 1).saturating_add_signed(admission.amount.saturating_neg());
            admission.bound = Some(admission.bound.map_or(bound, |least| least.min(bound)));
            admission.admitted += 1;
            admission.amount = admission.amount.saturating_add_unsigned(*may_cost);
        }
        admission
    }

    /// Answers all that wait. Returns what was reserved for those that do no more.
    pub(super) fn answer(self, refused: &[(usize, UsedUp)]) -> u64 {
        let mut unused = 0_u64;
        for (place, Reservation { may_cost, answer, .. }) in
            self.reservations.into_iter().enumerate()
        {
            match refused.iter().find(|(other, _)| *other == place) {
                Some((_, used)) => drop(answer.send(Ok(Err(*used)))),
                None if answer.send(Ok(Ok(()))).is_err() => {
                    unused = unused.saturating_add(may_cost);
                }
                None => {}
            }
        }
        for settlement in self.settlements {
            // The settlement counts though its run is gone.
            let _ = settlement.send(Ok(()));
        }
        unused
    }

    /// Answers all that wait with an error.
    pub(super) fn fail(self, error: &StateError) {
        for Reservation { answer, .. } in self.reservations {
            // One that is no longer waited for needs none.
            let _ = answer.send(Err(repeat_error(error)));
        }
        for settlement in self.settlements {
            let _ = settlement.send(Err(repeat_error(error)));
        }
    }
}

/// Repeats an error for another waiter.
fn repeat_error(error: &StateError) -> StateError {
    match error {
        StateError::InvalidKey(why) => StateError::InvalidKey(why.clone()),
        StateError::Serialization(why) => StateError::Serialization(why.clone()),
        StateError::WriteFailed(why) => StateError::WriteFailed(why.clone()),
        other => StateError::Other(Chain(other).to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(owed: i64, reservations: &[(u64, u64)]) -> AccountRound {
        let reservation = |(may_cost, max): &(u64, u64)| {
            let (answer, _) = oneshot::channel();
            Reservation { may_cost: *may_cost, max: *max, answer }
        };
        let reservations = reservations.iter().map(reservation).collect();
        AccountRound { reservations, owed, settlements: Vec::new() }
    }

    #[track_caller]
    fn check(
        round: &AccountRound,
        stored: u64,
        (admitted, amount, bound): (usize, i64, Option<u64>),
        refused: &[(usize, u64)],
    ) {
        let refused = refused.iter().map(|(place, used)| (*place, UsedUp(*used))).collect();
        let expected = AdmittedPart { admitted, amount, bound, refused };
        assert_eq!(round.admit(stored), expected);
    }

    /// Spec: B4
    #[test]
    fn reservations_count_for_those_behind() {
        check(&round(0, &[(5, 10), (5, 10), (5, 10)]), 0, (2, 10, Some(4)), &[(2, 10)]);
        check(&round(0, &[(5, 10), (5, 10)]), 4, (2, 10, Some(4)), &[]);
        check(&round(0, &[(5, 10), (5, 10)]), 5, (1, 5, Some(9)), &[(1, 10)]);
        check(&round(0, &[(5, 10)]), 10, (0, 0, None), &[(0, 10)]);
        // Another limit of the same account.
        check(&round(0, &[(5, 10), (1, 5), (1, 20)]), 3, (2, 6, Some(9)), &[(1, 8)]);
        // Settlements come first.
        check(&round(-4, &[(5, 10)]), 12, (1, 1, Some(13)), &[]);
        check(&round(3, &[(5, 10)]), 7, (0, 3, None), &[(0, 10)]);
        check(&round(-4, &[(0, 10)]), 1, (1, -4, Some(13)), &[]);
    }

    /// The bound is the most for which the same reservations are admitted.
    #[test]
    fn bound_is_the_last_that_admits_all() {
        let round = round(-3, &[(5, 40), (9, 30), (0, 31), (2, 50)]);
        for stored in 0..60 {
            let admission = round.admit(stored);
            let Some(bound) = admission.bound.filter(|_| admission.refused.is_empty()) else {
                continue;
            };
            assert!(round.admit(bound).refused.is_empty(), "{stored}: {bound}");
            assert!(!round.admit(bound + 1).refused.is_empty(), "{stored}: {bound}");
        }
    }
}
