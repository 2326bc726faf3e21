//! The newest runs of a log that fit conditions which the log does not know.

use backstop_event_log::LogError;

/// Reads from the newest runs of a log, four times as many each time, until enough is found or there are no more. `read`
/// looks at as many runs as it is told, and returns what it found with whether these were all runs.
pub(crate) async fn find_newest<T>(
    limit: u32,
    mut read: impl AsyncFnMut(u32) -> Result<(Vec<T>, bool), LogError>,
) -> Result<Vec<T>, LogError> {
    let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut looked_at = limit;
    loop {
        let (mut found, is_all) = read(looked_at).await?;
        if is_all || found.len() >= wanted {
            found.truncate(wanted);
            return Ok(found);
        }
        looked_at = looked_at.saturating_mul(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn find(limit: u32, runs: u32, fits: fn(&u32) -> bool) -> (Vec<u32>, Vec<u32>) {
        let mut asked = Vec::new();
        let found = find_newest(limit, async |looked_at| {
            asked.push(looked_at);
            let found = (0..runs.min(looked_at)).filter(fits).collect();
            Ok((found, runs < looked_at))
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
