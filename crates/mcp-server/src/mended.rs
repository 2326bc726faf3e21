//! JSON of clients that write half a surrogate pair.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use layer0::text::replace_lone_surrogates_in;
use tokio::io::{AsyncRead, ReadBuf};

/// Number of bytes per read.
const PIECE_BYTES: usize = 8 * 1024;

/// A reader of JSON that replaces each half of a surrogate pair by U+FFFD: a message with one would be dropped without
/// an answer.
pub(crate) struct Mended<R> {
    inner: R,
    read: Vec<u8>,
    /// Number of bytes read that are already replaced.
    mended: usize,
    is_over: bool,
}

impl<R> Mended<R> {
    pub(crate) const fn new(inner: R) -> Self {
        Self { inner, read: Vec::new(), mended: 0, is_over: false }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Mended<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.mended == 0 && !this.is_over {
            let mut piece = [0; PIECE_BYTES];
            let mut piece = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut piece))?;
            this.is_over = piece.filled().is_empty();
            this.read.extend_from_slice(piece.filled());
            this.mended = replace_lone_surrogates_in(&mut this.read, this.is_over);
        }
        let count = this.mended.min(to.remaining());
        to.put_slice(&this.read[..count]);
        this.read.drain(..count);
        this.mended -= count;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Spec: Q10
    #[tokio::test]
    async fn half_a_pair_is_mended_at_any_cut() {
        let written = b"{\"a\":\"\\ud83d\"}\n{\"b\":\"\\ud83d\\ude00\"}\n\\";
        let expected = b"{\"a\":\"\\ufffd\"}\n{\"b\":\"\\ud83d\\ude00\"}\n\\";
        let (ours, mut theirs) = tokio::io::duplex(1);
        let writing = async {
            theirs.write_all(written).await.unwrap();
            drop(theirs);
        };
        let reading = async {
            let mut read = Vec::new();
            Mended::new(ours).read_to_end(&mut read).await.unwrap();
            read
        };
        let ((), read) = tokio::join!(writing, reading);
        assert_eq!(read, expected);
    }
}
