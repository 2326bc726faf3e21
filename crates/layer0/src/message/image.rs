//! Images for a model.

use std::fmt;
use std::sync::Arc;

use crate::code;
use crate::failure::{Effect, Facts, Failure};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use serde::{Deserialize, Serialize};

/// An image in a form for providers.
///
/// It contains the bytes, not an address, so that the record of a run contains what the model saw.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Image {
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub media_type: Arc<str>,
    /// The bytes in Base64 with padding (RFC 4648, section 4).
    pub data: Arc<str>,
}

/// Maximum size of an image, in bytes: the largest limit of a provider.
pub const MAX_IMAGE_BYTES: usize = 20 * 1024 * 1024;

/// Decoder of Base64 with or without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The error of bytes that are not an image for a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The image should be base64, but is not.
    ///
    /// Retry: never. Effect: none.
    #[error("not base64")]
    NotBase64,
    /// The image is larger than [`MAX_IMAGE_BYTES`].
    ///
    /// Retry: never. Effect: none.
    #[error("an image of more than 20 MiB")]
    TooLarge,
    /// The format is not supported.
    ///
    /// Retry: never. Effect: none.
    #[error("not a PNG, JPEG, GIF or WebP image")]
    UnknownFormat,
}

impl Failure for ImageError {
    fn facts(&self) -> Facts {
        match self {
            Self::NotBase64 | Self::TooLarge | Self::UnknownFormat => {
                Facts::never(code::INPUT_INVALID, Effect::None)
            }
        }
    }
}

impl Image {
    /// Creates an image from the bytes of a file. The first bytes determine the media type.
    ///
    /// ```
    /// use layer0::message::Image;
    ///
    /// let gif = Image::from_bytes(b"GIF89a\x01\x00\x01\x00")?;
    /// assert_eq!(&*gif.media_type, "image/gif");
    /// # Ok::<(), layer0::message::ImageError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ImageError::UnknownFormat`] for anything but PNG, JPEG, GIF and WebP, which all providers accept;
    /// [`ImageError::TooLarge`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ImageError> {
        if bytes.len() > MAX_IMAGE_BYTES {
            return Err(ImageError::TooLarge);
        }
        let media_type = media_type(bytes).ok_or(ImageError::UnknownFormat)?;
        Ok(Self { media_type: media_type.into(), data: STANDARD.encode(bytes).into() })
    }

    /// Creates an image from the bytes of a file in Base64, with or without padding.
    ///
    /// ```
    /// use layer0::message::Image;
    ///
    /// let gif = Image::from_base64("R0lGODlhAQABAA")?;
    /// assert_eq!(gif, Image::from_bytes(b"GIF89a\x01\x00\x01\x00")?);
    /// # Ok::<(), layer0::message::ImageError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ImageError::NotBase64`], and the errors of [`Image::from_bytes`].
    pub fn from_base64(text: &str) -> Result<Self, ImageError> {
        Self::from_bytes(&LENIENT.decode(text).map_err(|_| ImageError::NotBase64)?)
    }

    /// Returns the bytes; `None` if the data is not valid Base64.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        LENIENT.decode(&*self.data).ok()
    }
}

/// Returns the media type for the first bytes, by <https://mimesniff.spec.whatwg.org/#matching-an-image-type-pattern>.
fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', b'V', b'P', ..] => {
            Some("image/webp")
        }
        _ => None,
    }
}

/// Omits the bytes, because there are many.
impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("media_type", &self.media_type)
            .field("base64_chars", &self.data.len())
            .finish()
    }
}
