//! State stores that break one promise each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_redact::Redactor;
use backstop_state::{PreparedWrite, words};
use backstop_testkit::contract::Suite;
use layer0::error::StateError;
use layer0::state::{
    Added, Expected, Scope, StateAdd, StateEntry, StateQuery, StateWrite, Versioned,
};
use layer0::{StateStore, Timestamp};
use serde_json::{Value, json};

super::defects! {
    AddsAboveTheBound => adds_only_up_to_a_bound,
    AddsForever => adds_to_a_number,
    AddsInTwoSteps => loses_no_addition_of_many,
    AddsToAnything => adds_to_nothing_but_numbers,
    AbsentIsAnything => writes_only_where_nothing_is,
    AfterIsIgnored => lists_page_by_page,
    AfterIsIncluded => lists_page_by_page,
    AllScopesAreOne => keeps_scopes_apart,
    BeginsWithAValue => begins_empty,
    ChecksThenWrites => loses_no_update_of_many_writers,
    ClearsEverything => empties_a_scope,
    ClearsNothing => empties_a_scope,
    ConflictNamesTheExpected => writes_only_over_what_was_expected,
    ConflictWrites => writes_only_over_what_was_expected,
    CountsNothingCleared => empties_a_scope,
    CutsLongValues => keeps_any_json,
    DeleteFindsNothing => removes_only_what_was_expected,
    DeleteIgnoresTheExpected => removes_only_what_was_expected,
    ExpiredConflicts => forgets_what_has_expired,
    ExpiresLate => forgets_what_has_expired,
    FailsOnOddQuestions => takes_any_text_to_find,
    FindsByCase => finds_words,
    FindsEverything => finds_words,
    FindsUnderAnyPrefix => finds_under_a_prefix,
    FindsGoneText => finds_no_text_that_is_gone,
    FindsOldestFirst => finds_the_newest_of_equals_first,
    FindsOnlyWhatHasAll => finds_the_best_fit_first,
    FindsPartsOfWords => finds_words,
    FindsWithoutRank => finds_the_best_fit_first,
    FloatsEveryNumber => keeps_any_json,
    GivesTwoTheLock => gives_a_lock_to_one_of_many,
    IgnoresTheFindLimit => finds_the_best_fit_first,
    IgnoresTheLimit => lists_page_by_page,
    IgnoresThePrefix => lists_by_prefix,
    KeepsSecrets => takes_secrets_out,
    KeepsTheFirstExpiry => keeps_what_is_written_anew,
    ListsBackwards => lists_in_the_order_of_keys,
    ListsForwardsOnly => lists_backwards,
    ListsOneScope => lists_scopes,
    ListsScopesAnew => lists_scopes,
    LosesTheTime => reads_what_was_written,
    NeverExpires => forgets_what_has_expired,
    NewestFirstByKey => lists_the_newest_first,
    NullIsNothing => keeps_any_json,
    PrefixIgnoresCase => lists_by_prefix,
    RefusesTheLongestKey => refuses_keys,
    RoundsNumbers => keeps_numbers_as_written,
    TakesAnyKey => refuses_keys,
    TakesDeepValues => refuses_what_is_too_deep,
    TakesLargeValues => refuses_what_is_too_large,
    VersionsPerKey => gives_no_version_twice,
    WritesInTwoSteps => writes_a_dropped_value_whole_or_not_at_all,
}

use Defect as D;

/// Spec: K1
#[test]
fn every_defect_of_a_state_store_is_noticed() {
    super::check(DEFECTS, suite);
}

fn suite(defect: Defect) -> Suite {
    backstop_testkit::contract::state_store(async move |clock: Arc<dyn Clock>| {
        Arc::new(Defective { defect, clock, kept: Mutex::default() }) as _
    })
}

/// A store that does one thing wrong.
struct Defective {
    defect: Defect,
    clock: Arc<dyn Clock>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    values: BTreeMap<(String, String), Row>,
    writes: u64,
}

#[derive(Clone)]
struct Row {
    value: Versioned,
    words: BTreeSet<String>,
}

impl Defective {
    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn place(&self, scope: &Scope, key: &str) -> (String, String) {
        let scope = if self.is(D::AllScopesAreOne) { &Scope::Global } else { scope };
        (scope.to_string(), key.to_owned())
    }

    /// Returns what is kept of a scope now.
    fn of_scope(&self, scope: &Scope) -> Vec<(String, Row)> {
        let (now, (wanted, _)) = (self.clock.now(), self.place(scope, ""));
        let is_over = |row: &Row| match (self.defect, row.value.expires_at) {
            (D::NeverExpires, _) | (_, None) => false,
            (D::ExpiresLate, Some(at)) => at < now,
            (_, Some(at)) => at <= now,
        };
        let kept = self.kept.lock().unwrap();
        let of_scope = kept.values.iter().filter(|((of, _), _)| *of == wanted);
        let mut rows: Vec<(String, Row)> = of_scope
            .filter(|(_, row)| !is_over(row))
            .map(|((_, key), row)| (key.clone(), row.clone()))
            .collect();
        if self.is(D::BeginsWithAValue) && kept.values.is_empty() {
            let value = Versioned::new(json!("k"), 1, now);
            rows.push(("k".to_owned(), Row { value, words: BTreeSet::new() }));
        }
        rows
    }

    fn found(&self, scope: &Scope, key: &str) -> Option<Row> {
        self.of_scope(scope).into_iter().find(|(of, _)| of == key).map(|(_, row)| row)
    }

    fn shown(&self, (key, row): (String, Row)) -> StateEntry {
        let mut found = row.value;
        match (self.defect, found.value.read::<f64>()) {
            (D::FloatsEveryNumber, Ok(number)) => found.value = json!(number).into(),
            (D::RoundsNumbers, _) => found.value = found.value.value().into(),
            (D::LosesTheTime, _) => found.written_at = Timestamp::default(),
            _ => {}
        }
        (key, found)
    }

    fn prepared(&self, write: StateWrite) -> Result<PreparedWrite, StateError> {
        let StateWrite { scope, key, value, expected, expires_after, .. } = write.clone();
        let now = self.clock.now();
        if self.is(D::RefusesTheLongestKey) && key.len() == 256 {
            return Err(StateError::InvalidKey("it is too long".to_owned()));
        }
        let mut given = write;
        if self.is(D::TakesAnyKey) {
            given.key = "any".to_owned();
        }
        if matches!(self.defect, D::TakesDeepValues | D::TakesLargeValues | D::KeepsSecrets) {
            given.value = json!("as it is").into();
        }
        let value = value.text()?.clone();
        if let (D::CutsLongValues, Some(text)) = (self.defect, value.as_string())
            && text.len() > 10_000
        {
            given.value = json!(text[..10_000]).into();
        }
        let mut prepared = PreparedWrite::new(given, &Redactor::new(), now)?;
        if self.is(D::TakesAnyKey) {
            prepared.key = key;
        }
        let is_odd = match self.defect {
            D::TakesDeepValues => value.get().starts_with('['),
            D::TakesLargeValues => value.get().len() > 1024 * 1024,
            D::KeepsSecrets => true,
            _ => false,
        };
        if is_odd {
            prepared.value = value;
        }
        (prepared.scope, prepared.expected) = (scope, expected);
        prepared.expires_at = expires_after.map(|time: Duration| now.after(time));
        Ok(prepared)
    }

    fn keep(&self, write: PreparedWrite) -> u64 {
        let place = self.place(&write.scope, &write.key);
        let mut kept = self.kept.lock().unwrap();
        kept.writes += 1;
        let before = kept.values.get(&place).cloned();
        let version = match (self.defect, &before) {
            (D::VersionsPerKey, before) => before.as_ref().map_or(1, |row| row.value.version + 1),
            _ => kept.writes,
        };
        let mut words: BTreeSet<String> = words(&write.words).collect();
        let mut expires_at = write.expires_at;
        match (self.defect, before) {
            (D::FindsGoneText, Some(before)) => words.extend(before.words),
            (D::KeepsTheFirstExpiry, Some(before)) => expires_at = before.value.expires_at,
            _ => {}
        }
        let value = Versioned::new(write.value, version, write.at).expires_at(expires_at);
        kept.values.insert(place, Row { value, words });
        version
    }
}

#[async_trait]
impl StateStore for Defective {
    async fn read(&self, scope: &Scope, key: &str) -> Result<Option<Versioned>, StateError> {
        let row = self.found(scope, key);
        if self.is(D::NullIsNothing)
            && row.as_ref().is_some_and(|row| row.value.value == Value::Null)
        {
            return Ok(None);
        }
        Ok(row.map(|row| self.shown((key.to_owned(), row)).1))
    }

    async fn write(&self, write: StateWrite) -> Result<u64, StateError> {
        let prepared = self.prepared(write)?;
        let found = match (self.defect, self.found(&prepared.scope, &prepared.key)) {
            (D::ExpiredConflicts, None) => {
                let place = self.place(&prepared.scope, &prepared.key);
                self.kept.lock().unwrap().values.get(&place).cloned()
            }
            (_, found) => found,
        };
        let version = found.map(|row| row.value.version);
        match self.defect {
            D::ChecksThenWrites => tokio::task::yield_now().await,
            D::GivesTwoTheLock if prepared.key == "lock" => tokio::task::yield_now().await,
            D::WritesInTwoSteps => {
                let mut half = prepared.clone();
                half.value = json!({ "a": 1 }).into();
                self.keep(half);
                tokio::task::yield_now().await;
            }
            _ => {}
        }
        let is_allowed = match (self.defect, prepared.expected) {
            (D::AbsentIsAnything, Expected::Absent) => true,
            (_, expected) => expected.allows(version),
        };
        if is_allowed {
            return Ok(self.keep(prepared));
        }
        let (scope, key) = (prepared.scope.clone(), prepared.key.clone());
        let told = match (self.defect, prepared.expected) {
            (D::ConflictNamesTheExpected, Expected::Version(expected)) => Some(expected),
            _ => version,
        };
        if self.is(D::ConflictWrites) {
            self.keep(prepared);
        }
        Err(StateError::conflict(&scope, key, told))
    }

    async fn add(&self, mut add: StateAdd) -> Result<Added, StateError> {
        match self.defect {
            D::AddsAboveTheBound => add.unless_above = None,
            D::AddsForever => add.expires_after = None,
            _ => {}
        }
        let mut tries_left = 100;
        loop {
            let stored = self.read(&add.scope, &add.key).await?;
            let counts = |stored: &Versioned| {
                !self.is(D::AddsToAnything) || stored.value.get().parse::<u64>().is_ok()
            };
            let mut write = match add.over(stored.filter(counts).as_ref())? {
                Ok(write) => write,
                Err(found) => return Ok(Added::Refused(found)),
            };
            let sum = write.value.text()?.read().unwrap();
            if matches!(self.defect, D::AddsInTwoSteps | D::AddsToAnything) {
                write.expected = Expected::Any;
                tokio::task::yield_now().await;
            }
            match self.write(write).await {
                Err(StateError::Conflict { .. }) if tries_left > 0 => tries_left -= 1,
                written => return written.map(|_| Added::Done(sum)),
            }
        }
    }

    async fn delete(
        &self,
        scope: &Scope,
        key: &str,
        expected: Expected,
    ) -> Result<bool, StateError> {
        let version = self.found(scope, key).map(|row| row.value.version);
        if !self.is(D::DeleteIgnoresTheExpected) && !expected.allows(version) {
            return Err(StateError::conflict(scope, key, version));
        }
        let place = self.place(scope, key);
        let mut kept = self.kept.lock().unwrap();
        if self.is(D::FindsGoneText) {
            return Ok(kept.values.contains_key(&place));
        }
        let removed = version.is_some() && kept.values.remove(&place).is_some();
        Ok(removed && !self.is(D::DeleteFindsNothing))
    }

    async fn list(&self, query: StateQuery) -> Result<Vec<StateEntry>, StateError> {
        let StateQuery { scope, prefix, after, backwards, newest_first, limit, .. } = query;
        let backwards = backwards && !self.is(D::ListsForwardsOnly);
        let mut rows = self.of_scope(&scope);
        rows.retain(|(key, _)| match self.defect {
            D::IgnoresThePrefix => true,
            D::PrefixIgnoresCase => key.to_lowercase().starts_with(&prefix),
            _ => key.starts_with(&prefix),
        });
        rows.retain(|(key, _)| match (self.defect, &after) {
            (_, None) | (D::AfterIsIgnored, _) => true,
            (D::AfterIsIncluded, Some(after)) => key >= after,
            (_, Some(after)) if backwards => key < after,
            (_, Some(after)) => key > after,
        });
        if backwards {
            rows.reverse();
        }
        if newest_first && !self.is(D::NewestFirstByKey) {
            rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.value.version));
        }
        let rounds = self.kept.lock().unwrap().values.len();
        match self.defect {
            D::IgnoresTheLimit => {}
            // Pages that begin anew would never end.
            D::AfterIsIgnored | D::AfterIsIncluded if after.is_some() && rounds > 0 => {
                rows.truncate(usize::from(rows.len() > 1));
                self.kept.lock().unwrap().values.pop_first();
            }
            _ => rows.truncate(usize::try_from(limit).unwrap()),
        }
        if self.is(D::ListsBackwards) {
            rows.reverse();
        }
        Ok(rows.into_iter().map(|row| self.shown(row)).collect())
    }

    async fn search(&self, query: StateQuery, text: &str) -> Result<Vec<StateEntry>, StateError> {
        let StateQuery { scope, prefix, limit, .. } = query;
        if self.is(D::FailsOnOddQuestions) && text.contains(['"', '*']) {
            return Err(StateError::Other("syntax error".into()));
        }
        let wanted: BTreeSet<String> = match self.defect {
            D::FindsByCase => text.split_whitespace().map(ToOwned::to_owned).collect(),
            _ => words(text).collect(),
        };
        let fit = |row: &Row| match self.defect {
            D::FindsEverything => 1,
            D::FindsPartsOfWords => {
                let is_part = |part: &&String| row.words.iter().any(|word| word.contains(*part));
                wanted.iter().filter(is_part).count()
            }
            _ => wanted.intersection(&row.words).count(),
        };
        let mut ranked: Vec<_> =
            self.of_scope(&scope).into_iter().map(|row| (fit(&row.1), row)).collect();
        let is_under = |key: &str| self.is(D::FindsUnderAnyPrefix) || key.starts_with(&prefix);
        ranked.retain(|(_, (key, _))| is_under(key));
        ranked.retain(|(fit, _)| match self.defect {
            D::FindsOnlyWhatHasAll => *fit == wanted.len(),
            _ => *fit > 0,
        });
        ranked.sort_by_key(|(fit, (_, row))| {
            let (fit, version) = (*fit, row.value.version);
            match self.defect {
                D::FindsOldestFirst => (usize::MAX - fit, version),
                D::FindsWithoutRank => (0, u64::MAX - version),
                _ => (usize::MAX - fit, u64::MAX - version),
            }
        });
        if !self.is(D::IgnoresTheFindLimit) {
            ranked.truncate(usize::try_from(limit).unwrap());
        }
        Ok(ranked.into_iter().map(|(_, row)| self.shown(row)).collect())
    }

    async fn scopes(&self, after: Option<&Scope>, limit: u32) -> Result<Vec<Scope>, StateError> {
        let kept = self.kept.lock().unwrap();
        let scopes: BTreeSet<String> = kept.values.keys().map(|(scope, _)| scope.clone()).collect();
        let after = after.map(ToString::to_string).unwrap_or_default();
        let limit = match self.defect {
            D::ListsOneScope => usize::from(after.is_empty()),
            D::ListsScopesAnew => {
                return Ok(scopes.iter().map(|text| text.parse().unwrap()).take(3).collect());
            }
            _ => usize::try_from(limit).unwrap(),
        };
        let listed = scopes.iter().filter(|text| **text > after).take(limit);
        Ok(listed.map(|text| text.parse().unwrap()).collect())
    }

    async fn clear(&self, scope: &Scope) -> Result<u64, StateError> {
        let (wanted, _) = self.place(scope, "");
        let mut kept = self.kept.lock().unwrap();
        let before = kept.values.len();
        match self.defect {
            D::ClearsNothing => {}
            D::ClearsEverything => kept.values.clear(),
            _ => kept.values.retain(|(of, _), _| *of != wanted),
        }
        let gone = before - kept.values.len();
        Ok(if self.is(D::CountsNothingCleared) { 0 } else { u64::try_from(gone).unwrap() })
    }
}
