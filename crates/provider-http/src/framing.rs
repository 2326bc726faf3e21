/// Cuts the body of a stream into frames, in whatever pieces it comes: [`Events`](crate::Events),
/// [`Values`](crate::Values), or what a protocol brings.
///
/// Its driver pushes a piece, takes frames until there is none, and asks for the rest at the end of
/// the body.
pub trait Framing: Default + Send {
    /// One frame, such as an event.
    type Frame: Send;

    /// Are the frames JSON themselves? The first bytes do not tell such a stream from an answer in one
    /// piece, so where a stream was asked for, every body but a page is one.
    const IS_JSON: bool = false;

    /// Takes a piece of the body. The frames before it have all been taken.
    ///
    /// # Errors
    ///
    /// [`FrameError::Invalid`] when a frame, or the stream, is too large.
    fn push(&mut self, chunk: &[u8]) -> Result<(), FrameError>;

    /// Takes the next complete frame.
    ///
    /// # Errors
    ///
    /// [`FrameError::Invalid`] when the bytes are no frame.
    fn next(&mut self) -> Result<Option<Self::Frame>, FrameError>;

    /// Takes what the end of the body left, where that is a frame.
    ///
    /// # Errors
    ///
    /// [`FrameError::Truncated`] when the end of the body cut a frame off that would not be missed
    /// otherwise.
    fn rest(&mut self) -> Result<Option<Self::Frame>, FrameError>;
}

/// Says why bytes are no frame.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// They are not what the protocol says: what is wrong with them.
    Invalid(String),
    /// The body ended too early: what is missing.
    Truncated(&'static str),
}

impl FrameError {
    /// Says that a frame, or all together, is too large.
    pub(crate) fn too_large() -> Self {
        Self::Invalid("stream is too large".to_owned())
    }
}
