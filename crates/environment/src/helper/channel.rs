//! The helper's end of the control channel.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::message::{HEAD, encode, length};
use crate::plan::Report;

/// The control channel, which is the standard input of the outer and inner helper.
pub(super) struct HelperChannel(OwnedFd);

impl HelperChannel {
    /// Takes the channel from standard input, so that started processes do not inherit it.
    pub(super) fn take() -> io::Result<Self> {
        Ok(Self(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?))
    }

    /// Reads the next message and the file that is sent with it. Later messages remain for the next reader.
    pub(super) fn receive<T: DeserializeOwned>(&self) -> io::Result<(T, Option<OwnedFd>)> {
        let mut head = [0; HEAD];
        let file = self.read_with_file(&mut head)?;
        let mut body = vec![0; length(head)?];
        self.read(&mut body)?;
        Ok((serde_json::from_slice(&body)?, file))
    }

    /// Sends a report; the parent may be gone.
    pub(super) fn report(&self, report: &Report) {
        let _ = self.send(report, None);
    }

    /// Sends a message, with a file if given.
    pub(super) fn send(
        &self,
        message: &impl Serialize,
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let bytes = encode(message)?;
        let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        let flags = SendFlags::NOSIGNAL;
        let sent = sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, flags)?;
        let mut rest = bytes.get(sent..).unwrap_or_default();
        while !rest.is_empty() {
            let sent = rustix::net::send(&self.0, rest, flags)?;
            rest = rest.get(sent..).unwrap_or_default();
        }
        Ok(())
    }

    /// Returns whether the parent has closed the channel.
    pub(super) fn is_closed(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::RDHUP)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    fn read_with_file(&self, bytes: &mut [u8; HEAD]) -> io::Result<Option<OwnedFd>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let read = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(bytes)], &mut control, flags) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?.bytes,
            }
        };
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        self.read(bytes.get_mut(read..).unwrap_or_default())?;
        Ok(file)
    }

    fn read(&self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let read = match rustix::io::read(&self.0, &mut *bytes) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes = bytes.split_at_mut(read).1;
        }
        Ok(())
    }
}

impl AsFd for HelperChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Closes the program's outputs here, so that their reader sees the end once the program has closed them.
pub(super) fn let_go_of_outputs() -> io::Result<()> {
    let null = std::fs::File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
