use layer0::Timestamp;
use layer0::id::ErrorId;

use crate::StoreError;

/// Returns an id for an error of this time: `err_YYYYMMDD_HHMMSS_` and 6 hex digits from the operating system, 26
/// characters. Two ids may be equal; a store then draws another one.
///
/// # Errors
///
/// [`StoreError::Failed`] if the operating system provides no randomness.
pub fn error_id(at: Timestamp) -> Result<ErrorId, StoreError> {
    Ok(ErrorId::new(format!("err_{}_{}", at.compact(), random_hex()?)))
}

/// Draws 6 hex digits from the operating system.
pub(crate) fn random_hex() -> Result<String, StoreError> {
    let mut random = [0; 3];
    getrandom::fill(&mut random).map_err(|error| StoreError::Failed(error.into()))?;
    let [a, b, c] = random;
    Ok(format!("{a:02x}{b:02x}{c:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: S2
    #[test]
    fn ids_carry_the_time_and_differ() {
        let at = "2026-01-02T03:04:05Z".parse().unwrap();
        let (one, two) = (error_id(at).unwrap(), error_id(at).unwrap());
        assert!(one.as_str().starts_with("err_20260102_030405_"));
        assert_eq!(one.as_str().len(), 26);
        assert_ne!(one, two);
    }
}
