//! Standard input that is complete before its program begins.
//!
//! A program whose input is written after its start may run without it: this process may be killed
//! in between, and the program then acts on no input. So the input is complete first, in a pipe
//! that holds all of its bytes, or else in a file without a name.

use std::fs::File;
use std::io::{self, Write};
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::process::Stdio;

#[cfg(target_os = "linux")]
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
#[cfg(target_os = "linux")]
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};

/// The most bytes of a pipe for an unprivileged process, by the kernel's default.
#[cfg(target_os = "linux")]
const LARGEST_PIPE_BYTES: usize = 1024 * 1024;

/// A standard input that holds its bytes before the program begins.
///
/// ```
/// use backstop_process::{CompleteInput, Processes};
/// # use tokio::io::AsyncReadExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # #[cfg(unix)] {
/// let input = CompleteInput::new(b"hello")?;
/// let mut cat = Processes::start("cat", |command| {
///     command.stdin(input);
/// })?;
/// let (_, stdout, _) = cat.streams();
/// let mut text = String::new();
/// if let Some(mut stdout) = stdout {
///     stdout.read_to_string(&mut text).await?;
/// }
/// assert_eq!(text, "hello");
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CompleteInput {
    #[cfg(unix)]
    source: OwnedFd,
    #[cfg(not(unix))]
    source: File,
}

impl CompleteInput {
    /// Makes a complete input of any length.
    ///
    /// # Errors
    ///
    /// Fails if the system has no descriptor or no memory for it.
    pub fn new(input: &[u8]) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        {
            match Self::open(input) {
                Ok((whole, _)) => Ok(whole),
                Err(_) => Ok(Self { source: sealed_file(input)? }),
            }
        }
        #[cfg(not(target_os = "linux"))]
        {
            Ok(Self { source: unnamed_file(input)?.into() })
        }
    }

    /// Makes the first part of an input, and returns the end of the pipe for writing the rest.
    ///
    /// # Errors
    ///
    /// Fails if the system has no descriptor for it, and with [`io::ErrorKind::FileTooLarge`] if a
    /// pipe cannot hold the first part: more than a MiB for a process without privileges.
    #[cfg(target_os = "linux")]
    pub fn open(first: &[u8]) -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let has_room =
            |writer: &OwnedFd| fcntl_getpipe_size(writer).is_ok_and(|size| size >= first.len());
        if !has_room(&writer) && first.len() <= LARGEST_PIPE_BYTES {
            let _ = fcntl_setpipe_size(&writer, first.len());
        }
        if !has_room(&writer) {
            return Err(too_large(first));
        }
        let flags = rustix::fs::fcntl_getfl(&writer)?;
        // A pipe that cannot hold the part is an error, not a wait for a reader that has not begun.
        rustix::fs::fcntl_setfl(&writer, flags | OFlags::NONBLOCK)?;
        let mut pipe = File::from(writer);
        match pipe.write_all(first) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(too_large(first));
            }
            Err(error) => return Err(error),
        }
        let writer = OwnedFd::from(pipe);
        rustix::fs::fcntl_setfl(&writer, flags)?;
        Ok((Self { source: reader }, writer))
    }
}

#[cfg(target_os = "linux")]
fn too_large(first: &[u8]) -> io::Error {
    let why = format!("a pipe here does not take {} bytes at once", first.len());
    io::Error::new(io::ErrorKind::FileTooLarge, why)
}

/// Returns a file in memory with these bytes, which cannot be changed or executed.
#[cfg(target_os = "linux")]
fn sealed_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("backstop-input", flags)?);
    file.write_all(bytes)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    rustix::fs::fchmod(&file, Mode::RUSR)?;
    let seals = SealFlags::SEAL | SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

/// Returns a file without a name, or one that loses its name when it is closed.
#[cfg(not(target_os = "linux"))]
fn unnamed_file(bytes: &[u8]) -> io::Result<File> {
    use std::io::Seek;

    let mut file = tempfile::tempfile()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

impl From<CompleteInput> for Stdio {
    fn from(input: CompleteInput) -> Self {
        Self::from(input.source)
    }
}

#[cfg(unix)]
impl From<CompleteInput> for OwnedFd {
    fn from(input: CompleteInput) -> Self {
        input.source
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::io::Read;

    use super::*;

    fn read_all(input: CompleteInput) -> Vec<u8> {
        let mut read = Vec::new();
        File::from(OwnedFd::from(input)).read_to_end(&mut read).unwrap();
        read
    }

    #[test]
    fn input_of_any_length_is_whole() {
        for length in [0, 1, 4096, 65_536, 65_537, 1 << 20, (1 << 20) + 1, 5 << 20] {
            let input = vec![b'x'; length];
            assert!(read_all(CompleteInput::new(&input).unwrap()) == input, "{length}");
        }
    }

    #[test]
    fn open_input_goes_on_behind_its_first_part() {
        let first = vec![b'x'; 200_000];
        let (input, rest) = CompleteInput::open(&first).unwrap();
        File::from(rest).write_all(b"rest").unwrap();
        assert!(read_all(input) == [&first[..], b"rest"].concat());
    }

    #[test]
    fn open_input_never_holds_half_a_part() {
        let error = CompleteInput::open(&vec![b'x'; 64 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn large_input_cannot_be_changed() {
        let mut file = File::from(sealed_file(b"input").unwrap());
        file.write_all(b"other").unwrap_err();
    }
}
