//! Statements over many rows, prepared once.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use sqlx::sqlite::{SqliteArguments, SqliteQueryResult, SqliteRow};
use sqlx::{Arguments, AssertSqlSafe, Encode, Sqlite, SqliteConnection, Type};

/// Maximum number of rows of a statement.
pub(crate) const MAX_ROWS: usize = 256;

/// A statement over several rows, available as `new` with the columns `column1`, `column2` and so on.
///
/// It is prepared for 1, 2, 4 and so on up to [`MAX_ROWS`] rows, and cached, because preparing a statement costs about
/// as much as running it. Its last rows may be all NULL, and the statement must ignore these.
pub(crate) struct Many {
    before: &'static str,
    columns: usize,
    after: &'static str,
    texts: [OnceLock<Arc<str>>; MAX_ROWS.ilog2() as usize + 1],
}

/// The values of rows, in order.
pub(crate) struct RowValues(Result<SqliteArguments, sqlx::error::BoxDynError>);

impl Many {
    /// Creates a statement from the text before and after the rows.
    pub(crate) const fn new(before: &'static str, columns: usize, after: &'static str) -> Self {
        Self { before, columns, after, texts: [const { OnceLock::new() }; _] }
    }

    /// Runs the statement over at most [`MAX_ROWS`] rows, and returns its result.
    pub(crate) async fn execute<T>(
        &'static self,
        connection: &mut SqliteConnection,
        rows: &[T],
        bind: impl Fn(&mut RowValues, &T),
    ) -> Result<SqliteQueryResult, sqlx::Error> {
        let (text, values) = self.bound(rows, bind)?;
        sqlx::query_with(text, values).execute(connection).await
    }

    /// Runs the statement over at most [`MAX_ROWS`] rows, and returns the rows of its result.
    pub(crate) async fn fetch<T>(
        &'static self,
        connection: &mut SqliteConnection,
        rows: &[T],
        bind: impl Fn(&mut RowValues, &T),
    ) -> Result<Vec<SqliteRow>, sqlx::Error> {
        let (text, values) = self.bound(rows, bind)?;
        sqlx::query_with(text, values).fetch_all(connection).await
    }

    fn bound<T>(
        &self,
        rows: &[T],
        bind: impl Fn(&mut RowValues, &T),
    ) -> Result<(AssertSqlSafe<Arc<str>>, SqliteArguments), sqlx::Error> {
        let mut values = RowValues(Ok(SqliteArguments::default()));
        rows.iter().for_each(|row| bind(&mut values, row));
        let values = values.0.map_err(sqlx::Error::Encode)?;
        // The text has only constants of this crate and question marks.
        Ok((AssertSqlSafe(self.text(rows.len())), values))
    }

    /// Returns the text for this number of rows.
    fn text(&self, rows: usize) -> Arc<str> {
        let rows = rows.next_power_of_two();
        let text = || {
            let row = format!("(?{})", ", ?".repeat(self.columns - 1));
            let mut text = format!("{} (VALUES {row}", self.before);
            for _ in 1..rows {
                let _ = write!(text, ", {row}");
            }
            let _ = write!(text, ") AS new {}", self.after);
            text.into()
        };
        match self.texts.get(rows.ilog2() as usize) {
            Some(known) => Arc::clone(known.get_or_init(text)),
            None => text(),
        }
    }
}

impl RowValues {
    /// Adds the value of the next column.
    pub(crate) fn put<'v, T: Encode<'v, Sqlite> + Type<Sqlite>>(&mut self, value: T) -> &mut Self {
        if let Ok(values) = &mut self.0
            && let Err(error) = values.add(value)
        {
            self.0 = Err(error);
        }
        self
    }
}
