/// A splitter of a stream's body into frames, however it is chunked: [`Events`](crate::Events),
/// [`JsonSplitter`](crate::JsonSplitter), or a protocol's own.
///
/// The caller pushes a chunk, takes frames until there are none, and takes the rest at the end of the body.
pub trait Framing: Default + Send {
    /// One frame, such as an event.
    type Frame: Send;

    /// Whether the frames are JSON themselves. The first bytes do not distinguish such a stream
    /// from a whole response, so in response to a streaming request, every body but an HTML page is
    /// a stream.
    const IS_JSON: bool = false;

    /// Adds a chunk of the body. All earlier frames have been taken.
    ///
    /// # Errors
    ///
    /// [`FrameError::Invalid`] when a frame, or the stream, is too large.
    fn push(&mut self, chunk: &[u8]) -> Result<(), FrameError>;

    /// Returns the next complete frame.
    ///
    /// # Errors
    ///
    /// [`FrameError::Invalid`] when the bytes are no frame.
    fn next(&mut self) -> Result<Option<Self::Frame>, FrameError>;

    /// Returns the frame that the end of the body completes, if any.
    ///
    /// # Errors
    ///
    /// [`FrameError::Truncated`] when the end of the body cut off a frame whose loss would go unnoticed.
    fn rest(&mut self) -> Result<Option<Self::Frame>, FrameError>;

    /// Returns the JSON text of a frame, if it has one. A character whose two escapes come in two frames is joined in
    /// the second.
    fn json(frame: &mut Self::Frame) -> Option<&mut String> {
        let _ = frame;
        None
    }
}

/// The reason why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// The bytes break the protocol; names the defect.
    Invalid(String),
    /// The body ended too early; names the missing part.
    Truncated(&'static str),
}

impl FrameError {
    /// Makes the error of a frame, or a stream, that is too large.
    pub(crate) fn too_large() -> Self {
        Self::Invalid("stream is too large".to_owned())
    }
}
