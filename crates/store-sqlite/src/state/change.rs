//! Writing of state: the writes of a commit share their statements.

use std::collections::BTreeMap;

use backstop_state::{PreparedWrite, words};
use layer0::Timestamp;
use sqlx::{Row, SqliteConnection};

use crate::job_error::JobError;
use crate::many::{MAX_ROWS, Many, RowValues};
use crate::rows::to_i64;

/// A value to be written, with all that can be done before it is its turn.
pub(crate) struct Change {
    write: PreparedWrite,
    scope: String,
    place: String,
    words: String,
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    /// The stored version, if any, is not the expected one.
    Refused(Option<u64>),
    /// The written value has this version.
    Written(u64),
}

impl Change {
    pub(super) fn new(write: PreparedWrite) -> Self {
        let scope = write.scope.to_string();
        let joined = |text: &str| words(text).collect::<Vec<_>>().join(" ");
        let (place, words) = (joined(&scope), joined(&write.words));
        Self { write, scope, place, words }
    }

    fn place(&self) -> Place<'_> {
        (&self.scope, &self.write.key)
    }
}

/// A scope and a key.
type Place<'a> = (&'a str, &'a str);

/// The stored row of a place: its number and its expiry.
#[derive(Clone, Copy)]
struct StoredValue {
    number: u64,
    expires_at: Option<Timestamp>,
}

/// Reads what is stored in places, and the last number that was given to a row.
static STORED: Many = Many::new(
    "SELECT NULL AS place, seq AS number, NULL AS expires_at FROM sqlite_sequence \
     WHERE name = 'state' UNION ALL SELECT new.column1, state.number, state.expires_at FROM",
    3,
    "CROSS JOIN state ON state.scope = new.column2 AND state.key = new.column3",
);
static REMOVE: Many = Many::new("DELETE FROM state WHERE number IN (SELECT column1 FROM", 1, ")");
static INSERT: Many = Many::new(
    "INSERT INTO state (number, scope, key, at, expires_at, value) SELECT * FROM",
    6,
    "WHERE column1 IS NOT NULL",
);
static INDEX: Many = Many::new(
    "INSERT INTO state_words (rowid, place, words) SELECT * FROM",
    3,
    "WHERE column1 IS NOT NULL",
);

/// Writes values, one after the other: a later one finds what an earlier one wrote. One that is refused
/// leaves the others alone.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    changes: &[&Change],
) -> Result<Vec<Changed>, JobError> {
    let mut changed = Vec::with_capacity(changes.len());
    for changes in changes.chunks(MAX_ROWS) {
        changed.extend(write_some(connection, changes).await?);
    }
    Ok(changed)
}

async fn write_some(
    connection: &mut SqliteConnection,
    changes: &[&Change],
) -> Result<Vec<Changed>, JobError> {
    let (mut stored, mut last) = read(connection, changes).await?;
    let mut gone: BTreeMap<Place<'_>, u64> = BTreeMap::new();
    let mut rows: BTreeMap<Place<'_>, (u64, &Change)> = BTreeMap::new();
    let mut changed = Vec::with_capacity(changes.len());
    for change in changes {
        let (place, write) = (change.place(), &change.write);
        let found = stored.get(&place).copied();
        let is_over = |stored: &StoredValue| stored.expires_at.is_some_and(|at| at <= write.at);
        let version = found.filter(|stored| !is_over(stored)).map(|stored| stored.number);
        if !write.expected.allows(version) {
            changed.push(Changed::Refused(version));
            continue;
        }
        if let Some(StoredValue { number, .. }) = found
            && !rows.contains_key(&place)
        {
            gone.insert(place, number);
        }
        last += 1;
        rows.insert(place, (last, change));
        stored.insert(place, StoredValue { number: last, expires_at: write.expires_at });
        changed.push(Changed::Written(last));
    }
    let gone: Vec<u64> = gone.into_values().collect();
    if !gone.is_empty() {
        REMOVE.execute(connection, &gone, bind_number).await?;
    }
    let mut rows: Vec<(u64, &Change)> = rows.into_values().collect();
    // By number, as they would be written one by one: each row is put at the end of the tables.
    rows.sort_unstable_by_key(|(number, _)| *number);
    if !rows.is_empty() {
        INSERT.execute(connection, &rows, bind_row).await?;
        INDEX.execute(connection, &rows, bind_words).await?;
    }
    Ok(changed)
}

async fn read<'a>(
    connection: &mut SqliteConnection,
    changes: &[&'a Change],
) -> Result<(BTreeMap<Place<'a>, StoredValue>, u64), JobError> {
    let mut places: Vec<Place<'a>> = changes.iter().map(|change| change.place()).collect();
    places.sort_unstable();
    places.dedup();
    let numbered: Vec<(i64, Place<'a>)> = (0..).zip(places.iter().copied()).collect();
    let bind = |values: &mut RowValues, (index, (scope, key)): &(i64, Place<'a>)| {
        values.put(*index).put(*scope).put(*key);
    };
    let (mut stored, mut last) = (BTreeMap::new(), 0);
    for row in STORED.fetch(connection, &numbered, bind).await? {
        let (place, number): (Option<i64>, i64) = (row.try_get("place")?, row.try_get("number")?);
        let number = u64::try_from(number).unwrap_or_default();
        let place = place.map(|index| usize::try_from(index).unwrap_or(usize::MAX));
        match place.map(|index| places.get(index)) {
            Some(Some(place)) => {
                let expires_at: Option<i64> = row.try_get("expires_at")?;
                let expires_at = expires_at.map(Timestamp::from_millis);
                stored.insert(*place, StoredValue { number, expires_at });
            }
            Some(None) => {}
            None => last = number,
        }
    }
    Ok((stored, last))
}

fn bind_number(values: &mut RowValues, number: &u64) {
    values.put(to_i64(*number));
}

fn bind_row(values: &mut RowValues, (number, change): &(u64, &Change)) {
    let Change { write, scope, .. } = change;
    values
        .put(to_i64(*number))
        .put(scope.as_str())
        .put(write.key.as_str())
        .put(write.at.as_millis())
        .put(write.expires_at.map(Timestamp::as_millis))
        .put(write.value.get());
}

fn bind_words(values: &mut RowValues, (number, change): &(u64, &Change)) {
    values.put(to_i64(*number)).put(change.place.as_str()).put(change.words.as_str());
}
