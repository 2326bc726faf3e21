//! Images that a tool shows in addition to its output.

use std::sync::{Arc, Mutex, PoisonError};

use backstop_redact::Redactor;
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use layer0::message::{Image, ImageError};

/// Maximum number of images of one call.
pub const MAX_SHOWN_IMAGES: usize = 4;
/// Maximum size of an image of a call, in bytes: the limit of every provider that accepts images of tools.
pub const MAX_SHOWN_IMAGE_BYTES: usize = 3 * 1024 * 1024;

/// The images that a running tool shows; see [`ToolContext::show_image`](crate::ToolContext::show_image).
#[derive(Debug, Clone, Default)]
pub struct ShownImages(Arc<Mutex<Vec<Image>>>);

/// The reason that an image is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotShown {
    /// The image contains a secret that the process holds.
    ///
    /// Retry: never. Effect: none.
    #[error("it holds a secret")]
    HoldsSecret,
    /// The bytes are not an image that providers take.
    ///
    /// Retry: never. Effect: none.
    #[error("unusable image")]
    Image(#[from] ImageError),
    /// The image is larger than [`MAX_SHOWN_IMAGE_BYTES`].
    ///
    /// Retry: never. Effect: none.
    #[error("an image of more than 3 MiB")]
    TooLarge,
    /// The call already shows [`MAX_SHOWN_IMAGES`] images.
    ///
    /// Retry: never. Effect: none.
    #[error("more than {MAX_SHOWN_IMAGES} images of one call")]
    TooMany,
}

impl Failure for NotShown {
    fn facts(&self) -> Facts {
        match self {
            Self::HoldsSecret | Self::Image(_) | Self::TooLarge | Self::TooMany => {
                Facts::never(code::INPUT_INVALID, Effect::None)
            }
        }
    }
}

impl ShownImages {
    /// Adds an image, unless it contains one of the redactor's secrets.
    pub(crate) fn show(&self, image: Image, redactor: &Redactor) -> Result<(), NotShown> {
        let bytes = image.bytes().ok_or(ImageError::NotBase64)?;
        if bytes.len() > MAX_SHOWN_IMAGE_BYTES {
            return Err(NotShown::TooLarge);
        }
        if holds_secret(&bytes, redactor) {
            return Err(NotShown::HoldsSecret);
        }
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if images.len() >= MAX_SHOWN_IMAGES {
            return Err(NotShown::TooMany);
        }
        images.push(image);
        Ok(())
    }

    /// Returns the images shown so far, in order.
    #[must_use]
    pub fn so_far(&self) -> Arc<[Image]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_slice().into()
    }
}

/// Returns whether the bytes, read as text, contain a secret.
fn holds_secret(bytes: &[u8], redactor: &Redactor) -> bool {
    if !redactor.holds_secrets() {
        return false;
    }
    let text = String::from_utf8_lossy(bytes);
    redactor.redact_held(&text) != text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gif(more: &[u8]) -> Image {
        Image::from_bytes(&[b"GIF89a", more].concat()).unwrap()
    }

    /// Spec: Q8, S9
    #[test]
    fn shown_images_are_bounded() {
        let redactor = Redactor::new().with_secret("held-secret-key");
        let images = ShownImages::default();
        let show = |image: Image| images.show(image, &redactor);
        assert_eq!(show(gif(b"held-secret-key")), Err(NotShown::HoldsSecret));
        assert_eq!(show(gif(&vec![0; MAX_SHOWN_IMAGE_BYTES])), Err(NotShown::TooLarge));
        let whole = gif(&vec![0; MAX_SHOWN_IMAGE_BYTES - 6]);
        for _ in 0..MAX_SHOWN_IMAGES {
            assert_eq!(show(whole.clone()), Ok(()));
        }
        assert_eq!(show(gif(b"")), Err(NotShown::TooMany));
        assert_eq!(images.so_far().len(), MAX_SHOWN_IMAGES);
        assert_eq!(images.so_far()[0], whole);
    }
}
