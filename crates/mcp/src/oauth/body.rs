//! What an authorization server answers.

use layer0::failure::Chain;
use reqwest::Response;

use super::error::LoginError;

/// The most bytes of an answer.
const MAX_BYTES: usize = 256 * 1024;

/// Reads an answer of bounded size.
pub(super) async fn read(mut response: Response) -> Result<Vec<u8>, LoginError> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| unreachable(&error))? {
        body.extend_from_slice(&piece);
        if body.len() > MAX_BYTES {
            let why = "the authorization server answers too much";
            return Err(LoginError::Failed(why.to_owned()));
        }
    }
    Ok(body)
}

/// Says that there is no answer.
pub(super) fn unreachable(error: &reqwest::Error) -> LoginError {
    LoginError::Failed(format!("the authorization server cannot be reached: {}", Chain(error)))
}
