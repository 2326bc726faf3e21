//! The newest runs of a log that fit conditions which the log does not know.

use backstop_event_log::LogError;

/// Reads from the newest runs of a log, four times as many each time, until enough is found or there are no more.
///
/// `read` examines the given number of runs, and returns what it found with whether these were all runs.
pub(crate) async fn find_newest<T>(
    limit: u32,
    mut read: impl AsyncFnMut(u32) -> Result<(Vec<T>, bool), LogError>,
) -> Result<Vec<T>, LogError> {
    let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut examined = limit;
    loop {
        let (mut found, is_all) = read(examined).await?;
        if is_all || found.len() >= wanted {
            found.truncate(wanted);
            return Ok(found);
        }
        examined = examined.saturating_mul(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn find(limit: u32, runs: u32, fits: fn(&u32) -> bool) -> (Vec<u32>, Vec<u32>) {
        let mut asked = Vec::new();
        let found = find_newest(limit, async |examined| {
            asked.push(examined);
            let found = (0..runs.min(examined)).filter(fits).collect();
            Ok((found, runs < examined))
        });
        let found = found.await.unwrap();
        (found, asked)
    }

    /// Spec: C2
    #[tokio::test]
    async fn search_ends_when_enough_is_found() {
        assert_eq!(find(2, 100, |_| true).await, (vec![0, 1], vec![2]));
        assert_eq!(find(2, 100, |run| run % 5 == 4).await, (vec![4, 9], vec![2, 8, 32]));
        assert_eq!(find(2, 20, |run| *run == 7).await, (vec![7], vec![2, 8, 32]));
        assert_eq!(find(2, 0, |_| true).await, (vec![], vec![2]));
    }
}
