//! The runs for `backstop resume --all`.

use layer0::id::RunId;

use crate::exit::CliError;
use crate::store::Chosen;
use crate::{interrupted, output, store};

/// Returns the interrupted runs of a store, and prints a note if there are none.
pub(super) async fn find(chosen: &Chosen) -> Result<Vec<RunId>, CliError> {
    let runs = match store::open_read_only(chosen).await? {
        Some(database) => {
            let runs = interrupted::find_roots(&database).await;
            database.close().await;
            runs?
        }
        None => Vec::new(),
    };
    if runs.is_empty() {
        output::note(&format!("no run is interrupted in {}", chosen.describe()));
    }
    Ok(runs)
}
