//! Responses of an authorization server.

use http::header::CONTENT_ENCODING;
use layer0::failure::Chain;
use layer0::text::replace_lone_surrogates_in;
use reqwest::Response;

use super::error::LoginError;

/// Maximum size of a response, in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// Reads a response of bounded size.
pub(super) async fn read(mut response: Response) -> Result<Vec<u8>, LoginError> {
    let coding = response.headers().get(CONTENT_ENCODING).map(|coding| coding.as_bytes());
    if coding.is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
        let why = "the authorization server compresses its answer, which was not asked for";
        return Err(LoginError::Failed(why.to_owned()));
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| unreachable(&error))? {
        body.extend_from_slice(&piece);
        if body.len() > MAX_BYTES {
            let why = "the authorization server answers too much";
            return Err(LoginError::Failed(why.to_owned()));
        }
    }
    replace_lone_surrogates_in(&mut body, true);
    Ok(body)
}

/// Returns the error of a request without a response.
pub(super) fn unreachable(error: &reqwest::Error) -> LoginError {
    LoginError::Failed(format!("the authorization server cannot be reached: {}", Chain(error)))
}
