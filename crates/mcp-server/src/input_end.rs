//! Notice of the end of a client's input.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;

/// A reader that cancels a token when its input has ended or cannot be read.
pub(crate) struct InputEnd<R> {
    inner: R,
    ended: CancellationToken,
}

impl<R> InputEnd<R> {
    pub(crate) const fn new(inner: R, ended: CancellationToken) -> Self {
        Self { inner, ended }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for InputEnd<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        let read = ready!(Pin::new(&mut self.inner).poll_read(context, to));
        if read.is_err() || to.filled().len() == before {
            self.ended.cancel();
        }
        Poll::Ready(read)
    }
}
