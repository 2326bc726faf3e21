//! The parent's end of the control channel.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use crate::message::{HEAD, encode, length};
use crate::plan::Report;

/// The control channel. When it is dropped, the helper ends all processes.
#[derive(Debug)]
pub(super) struct ParentChannel(UnixStream);

impl ParentChannel {
    /// Creates a channel, and returns it with the helper's end.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((Self(UnixStream::from_std(ours)?), theirs.into()))
    }

    /// Sends a message, with a file if given.
    pub(super) async fn send(
        &mut self,
        message: &impl Serialize,
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let bytes = encode(message)?;
        let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !files.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(&files));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            Ok(sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, flags)?)
        };
        let sent = self.0.async_io(Interest::WRITABLE, send).await?;
        self.0.write_all(bytes.get(sent..).unwrap_or_default()).await
    }

    /// Receives a report and the file that is sent with it; `None` after the whole helper has ended.
    pub(super) async fn receive(&mut self) -> io::Result<Option<(Report, Option<OwnedFd>)>> {
        let mut head = [0; HEAD];
        let received = self.0.async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let mut parts = [IoSliceMut::new(&mut head)];
            let read = recvmsg(&self.0, &mut parts, &mut control, flags)?.bytes;
            let file = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut files) => files.next(),
                _ => None,
            });
            Ok((read, file))
        });
        let (read, file) = match received.await {
            Ok(received) => received,
            // Messages that the other end did not read do not matter.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        };
        if read == 0 {
            return Ok(None);
        }
        self.0.read_exact(head.get_mut(read..).unwrap_or_default()).await?;
        let mut body = vec![0; length(head)?];
        self.0.read_exact(&mut body).await?;
        Ok(Some((serde_json::from_slice(&body)?, file)))
    }
}
