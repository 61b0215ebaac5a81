//! An output file that the user named: a report, a record, a machine file.
//!
//! It is opened before any process is changed. An older file keeps its content until the new
//! content is complete or the program runs. New files with command lines and addresses can be read
//! only by their owner. The name `-` is stdout.

mod queue;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rondpoint_linux::syscall::process::{User, effective_user};

use self::queue::Queue;
use crate::terminal;

// Of open(2) and errno(3); the first differs between architectures.
#[cfg(target_arch = "x86_64")]
const O_NOFOLLOW: i32 = 0o400_000;
#[cfg(not(target_arch = "x86_64"))]
const O_NOFOLLOW: i32 = 0o100_000;
const ELOOP: i32 = 40;
const ENXIO: i32 = 6;
const O_NONBLOCK: i32 = 0o4_000;
/// A pipe's reader may be started at the same time.
const PATIENCE: Duration = Duration::from_secs(2);
/// What the user names for stdout.
const STDOUT: &str = "-";
/// Permissions of a new file.
const PRIVATE: u32 = 0o600;
/// The same for a file that holds nothing of any program, as far as the umask lets.
const SHARED: u32 = 0o644;

/// An open file. Until [`Output::keep`] nothing is lost: a new file goes away with this value, and
/// an older one keeps its content.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    file: File,
    /// What waits for the reader of a manager's pipe.
    queue: Option<Queue>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Made by us, and not relied on yet.
    New,
    /// It was there before, as stdout was; the text that has been written to it waits here.
    Older(Vec<u8>),
    /// Ours to write.
    Kept,
}

impl Output {
    /// Opens `path` for writing. A new file belongs to `owner`, the caller of sudo, and is for it
    /// alone.
    pub(crate) fn open(path: &Path, owner: Option<&User>) -> Result<Self> {
        Self::open_with(path, owner, PRIVATE)
    }

    /// The same for a file that others may read.
    pub(crate) fn open_shared(path: &Path, owner: Option<&User>) -> Result<Self> {
        Self::open_with(path, owner, SHARED)
    }

    fn open_with(path: &Path, owner: Option<&User>, mode: u32) -> Result<Self> {
        let context = || purpose(path);
        if Self::is_stdout(path) {
            let file = io::stdout().as_fd().try_clone_to_owned().with_context(context)?.into();
            return Ok(Self::of(path, file, State::Older(Vec::new())));
        }
        let mut options = OpenOptions::new();
        options.write(true).mode(mode);
        let (file, state) = match options.clone().create_new(true).open(path) {
            Ok(file) => (file, State::New),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = open_older(&options, path, owner).with_context(context)?;
                (file, State::Older(Vec::new()))
            }
            Err(error) => return Err(error).with_context(context),
        };
        let output = Self::of(path, file, state);
        if let (State::New, Some(owner)) = (&output.state, owner) {
            std::os::unix::fs::fchown(&output.file, Some(owner.user), Some(owner.group))
                .with_context(context)?;
        }
        Ok(output)
    }

    fn of(path: &Path, file: File, state: State) -> Self {
        Self { path: path.to_path_buf(), file, queue: None, state }
    }

    /// For a manager, which must not wait for the reader of a pipe: it would neither place its
    /// program nor see the end of it. What waits for the reader is passed on when this is dropped.
    pub(crate) fn of_manager(mut self) -> Self {
        let is_file = self.file.metadata().is_ok_and(|found| found.is_file());
        self.queue = (!is_file).then(Queue::default);
        self
    }

    /// Passes on what waits for the reader of a manager's pipe. Nothing may be written afterwards.
    ///
    /// # Errors
    /// The reader takes nothing, or is too slow; or as write(2).
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.queue.take().map_or(Ok(()), |mut queue| queue.finish(&self.file))
    }

    /// As the user named it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this name stands for stdout.
    pub(crate) fn is_stdout(path: &Path) -> bool {
        path == Path::new(STDOUT)
    }

    /// What is done with the output, with which its errors begin: `writing to stdout`.
    pub(crate) fn purpose(&self) -> String {
        purpose(&self.path)
    }

    /// From here on the file is ours: an older one is emptied, and what has waited is written.
    /// Stdout keeps what it has, and a reader of it that has read enough is no failure.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        let State::Older(waiting) = std::mem::replace(&mut self.state, State::Kept) else {
            return Ok(());
        };
        if Self::is_stdout(&self.path) {
            return match self.write_all(&waiting) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                written => written,
            };
        }
        // A pipe or a device has nothing to empty.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.write_all(&waiting)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.queue {
            Some(queue) => queue.put(&self.file, bytes),
            None => self.file.write(bytes),
        }
    }

    /// Whether both are stdout or one regular file, which the later writer would spoil for the
    /// earlier one.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        let are_stdout = [self, other].iter().all(|one| Self::is_stdout(&one.path));
        are_stdout || other.file.metadata().is_ok_and(|other| self.is_file(&other))
    }

    /// Refuses a file that is read too: writing it would destroy what the user has.
    pub(crate) fn check_apart(&self, input: &Path) -> Result<()> {
        if fs::metadata(input).is_ok_and(|input| self.is_file(&input)) {
            let (path, input) = (self.path.display(), input.display());
            bail!("writing {path}: it is {input}, which is read; expected another file");
        }
        Ok(())
    }

    fn is_file(&self, other: &fs::Metadata) -> bool {
        let own = self.file.metadata();
        own.is_ok_and(|own| own.is_file() && (own.dev(), own.ino()) == (other.dev(), other.ino()))
    }
}

fn purpose(path: &Path) -> String {
    match Output::is_stdout(path) {
        true => "writing to stdout".to_string(),
        false => format!("writing {}", path.display()),
    }
}

/// Opens a file that is there already. Root follows no link, and the file must be root's own or the
/// caller's: another user may have put it there for root to spoil.
fn open_older(options: &OpenOptions, path: &Path, owner: Option<&User>) -> Result<File> {
    if effective_user() != 0 {
        return open_with_reader(options.clone(), 0, path).map_err(Into::into);
    }
    let file = open_with_reader(options.clone(), O_NOFOLLOW, path).map_err(|error| match error
        .raw_os_error()
    {
        Some(ELOOP) => anyhow::anyhow!("it is a symbolic link, which root does not follow"),
        _ => error.into(),
    })?;
    let found = file.metadata()?;
    let (uid, kind) = (found.uid(), found.file_type());
    // Another user's pipe would tell that user command lines and addresses.
    let is_trap = kind.is_file() || kind.is_fifo();
    if is_trap && uid != 0 && owner.is_none_or(|owner| owner.user != uid) {
        bail!("it belongs to user {uid}; expected a file of root or of the caller");
    }
    // Another user may have given a file of root this name (link(2)).
    if kind.is_file() && found.nlink() > 1 {
        let names = found.nlink();
        bail!("it has {names} names (hard links); expected a file with one, as root writes it");
    }
    Ok(file)
}

/// Opens a file, and a pipe only where it has a reader: else open(2) would wait for one for ever.
fn open_with_reader(mut options: OpenOptions, flags: i32, path: &Path) -> io::Result<File> {
    if !fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
        return options.custom_flags(flags).open(path);
    }
    let until = Instant::now() + PATIENCE;
    let with_reader = loop {
        match options.custom_flags(flags | O_NONBLOCK).open(path) {
            Err(error) if error.raw_os_error() != Some(ENXIO) => return Err(error),
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Err(_) => {
                let told = format!("no process has read this pipe for {PATIENCE:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, told));
            }
            Ok(file) => break file,
        }
    };
    // A reader that waits in open(2) goes on at the first writer, so this one stays until here.
    let blocking = options.custom_flags(flags).open(path);
    drop(with_reader);
    blocking
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.state {
            State::Older(waiting) => waiting.write(bytes),
            State::New | State::Kept => self.put(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // Another process may have removed it already, and made another one.
        let is_ours = || fs::symlink_metadata(&self.path).is_ok_and(|now| self.is_file(&now));
        if matches!(self.state, State::New) && is_ours() {
            let _ = fs::remove_file(&self.path);
        }
        // Masks that are not back yet come first.
        if std::thread::panicking() {
            return;
        }
        if let Err(error) = self.finish() {
            terminal::say(&format!("rondpoint: {}: {error}\n", purpose(&self.path)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_file_is_private_and_goes_away_unless_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let mut output = Output::open(&path, None).unwrap();
        output.write_all(b"header\n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE);
        drop(output);
        assert!(!path.exists());
        let mut output = Output::open(&path, None).unwrap();
        output.write_all(b"header\n").unwrap();
        output.keep().unwrap();
        output.write_all(b"line\n").unwrap();
        drop(output);
        assert_eq!(fs::read(&path).unwrap(), b"header\nline\n");
    }

    #[test]
    fn a_file_that_took_the_place_of_ours_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("new"), folder.path().join("aside"));
        let output = Output::open(&path, None).unwrap();
        fs::rename(&path, &aside).unwrap();
        fs::write(&path, "precious").unwrap();
        drop(output);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        let output = Output::open(&folder.path().join("link"), None).unwrap();
        fs::remove_file(output.path()).unwrap();
        std::os::unix::fs::symlink(&path, output.path()).unwrap();
        drop(output);
        assert!(fs::symlink_metadata(folder.path().join("link")).is_ok());
    }

    #[test]
    fn an_older_file_keeps_its_content_and_permissions_until_the_new_content_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("older");
        fs::write(&path, "what was there before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let mut output = Output::open(&path, None).unwrap();
        output.write_all(b"header\n").unwrap();
        drop(output);
        assert_eq!(fs::read(&path).unwrap(), b"what was there before");
        let mut output = Output::open(&path, None).unwrap();
        output.write_all(b"header\n").unwrap();
        output.keep().unwrap();
        output.write_all(b"line\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"header\nline\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn stdout_has_a_name_and_is_not_a_file_of_it() {
        let (stdout, named) = (Path::new("-"), Path::new("./-"));
        assert!(Output::is_stdout(stdout) && !Output::is_stdout(named));
        let output = Output::open(stdout, None).unwrap();
        assert_eq!(output.purpose(), "writing to stdout");
        assert!(output.is_same_file(&Output::open_shared(stdout, None).unwrap()));
        assert!(!stdout.exists());
    }

    #[test]
    fn root_follows_no_link_and_writes_no_file_of_another_user() {
        if effective_user() != 0 {
            println!("not tried: only root is in danger of it");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "precious").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let error = format!("{:#}", Output::open(&link, None).unwrap_err());
        assert!(error.contains("symbolic link"), "{error}");
        std::os::unix::fs::chown(&file, Some(4711), Some(4711)).unwrap();
        let error = format!("{:#}", Output::open(&file, None).unwrap_err());
        assert!(error.contains("belongs to user 4711"), "{error}");
        let caller = User { user: 4711, group: 4711, groups: vec![4711] };
        Output::open(&file, Some(&caller)).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"precious");
        std::os::unix::fs::chown(&file, Some(0), Some(0)).unwrap();
        fs::hard_link(&file, folder.path().join("name")).unwrap();
        let error = format!("{:#}", Output::open(&folder.path().join("name"), None).unwrap_err());
        assert!(error.contains("2 names"), "{error}");
        assert_eq!(fs::read(&file).unwrap(), b"precious");
    }

    #[test]
    fn root_tells_nothing_to_a_pipe_of_another_user() {
        if effective_user() != 0 {
            println!("not tried: only root is in danger of it");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(&folder);
        std::os::unix::fs::chown(&path, Some(4711), Some(4711)).unwrap();
        let caller = User { user: 4711, group: 4711, groups: vec![4711] };
        for (owner, is_told) in [(None, false), (Some(&caller), true)] {
            let reader = std::thread::spawn({
                let path = path.clone();
                move || fs::read(path).unwrap()
            });
            let opened = Output::open(&path, owner).map(drop);
            reader.join().unwrap();
            assert_eq!(opened.is_ok(), is_told, "{opened:?}");
        }
    }

    fn pipe(folder: &tempfile::TempDir) -> PathBuf {
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    #[test]
    fn a_pipe_is_written_where_somebody_reads_and_refused_where_nobody_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(&folder);
        let error = format!("{:#}", Output::open(&path, None).unwrap_err());
        assert!(error.contains("no process has read this pipe"), "{error}");
        let read = std::thread::spawn({
            let path = path.clone();
            move || fs::read(path).unwrap()
        });
        let mut output = Output::open(&path, None).unwrap();
        output.write_all(b"header\n").unwrap();
        output.keep().unwrap();
        drop(output);
        assert_eq!(read.join().unwrap(), b"header\n");
    }

    /// An open pipe of a manager, and its reader.
    fn managers_pipe(folder: &tempfile::TempDir) -> (Output, File) {
        let path = pipe(folder);
        let open = std::thread::spawn({
            let path = path.clone();
            move || File::open(path).unwrap()
        });
        let mut output = Output::open(&path, None).unwrap().of_manager();
        output.keep().unwrap();
        (output, open.join().unwrap())
    }

    /// A manager would wait for it, and its program would not be managed.
    #[test]
    fn a_pipe_whose_reader_does_not_read_is_an_error_at_once_when_too_much_waits() {
        let folder = tempfile::tempdir().unwrap();
        let (mut output, _reader) = managers_pipe(&folder);
        output.write_all(&vec![0; queue::MOST]).unwrap();
        let error = loop {
            let began = Instant::now();
            let written = output.write_all(&vec![0; 64 << 10]);
            assert!(began.elapsed() < Duration::from_secs(4), "the manager waits for its reader");
            if let Err(error) = written {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(error.to_string().contains("bytes behind"), "{error}");
    }

    #[test]
    fn a_pipe_whose_reader_is_late_gets_all_of_it_and_holds_up_no_write() {
        let folder = tempfile::tempdir().unwrap();
        let (mut output, mut reader) = managers_pipe(&folder);
        let text: Vec<u8> = (0..1 << 20).map(|index| (index % 251) as u8).collect();
        // Nothing is read until all of it is written.
        text.chunks(100_000).for_each(|line| output.write_all(line).unwrap());
        let read = std::thread::spawn(move || {
            let mut read = Vec::new();
            io::Read::read_to_end(&mut reader, &mut read).unwrap();
            read
        });
        drop(output);
        assert!(read.join().unwrap() == text, "the reader has all bytes in their order");
    }

    #[test]
    fn a_file_that_is_read_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let (read, other) = (folder.path().join("read"), folder.path().join("other"));
        fs::write(&read, "precious").unwrap();
        // Root writes no file with two names.
        let names = match effective_user() {
            0 => &["read", "./read"][..],
            _ => {
                fs::hard_link(&read, folder.path().join("link")).unwrap();
                &["read", "link", "./read"]
            }
        };
        for name in names {
            let output = Output::open(&folder.path().join(name), None).unwrap();
            let error = output.check_apart(&read).unwrap_err().to_string();
            assert!(error.contains("expected another file"), "{error}");
        }
        Output::open(&other, None).unwrap().check_apart(&read).unwrap();
        assert_eq!(fs::read(&read).unwrap(), b"precious");
    }

    #[test]
    fn a_device_is_written_and_two_names_of_one_file_are_recognised() {
        let mut null = Output::open(Path::new("/dev/null"), None).unwrap();
        null.write_all(b"x").unwrap();
        null.keep().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one");
        let first = Output::open(&path, None).unwrap();
        let second = Output::open(&folder.path().join(".").join("one"), None).unwrap();
        assert!(first.is_same_file(&second));
        assert!(!first.is_same_file(&null));
        let error = Output::open(&folder.path().join("none/x"), None).unwrap_err();
        assert!(format!("{error:#}").starts_with("writing "), "{error:#}");
    }
}
