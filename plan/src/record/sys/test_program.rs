//! A program that writes the pages that a test names: the tests' own binary, started again.
//! Commands come by standard input, one a line. Each is answered by a line on standard error when
//! it is done.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};

use perdura_dirty::written::{Kept, PageMap, Watch};
use rustix::mm::{
    Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous, mremap, munmap,
};

const PAGE: usize = 4096;
const IS_PROGRAM: &str = "PERDURA_RECORD_TEST_PROGRAM";

/// The test program, for the test that starts it.
pub struct Program {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStderr>,
}

impl Program {
    pub fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "record::sys::test_program::obeys", "--ignored", "--nocapture"]);
        command
            .env(IS_PROGRAM, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stderr.take().unwrap());
        let mut program = Self { child, commands, answers };
        assert_eq!(program.answer(), 0);
        program
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Tells the program a command, and waits until it is done.
    pub fn tell(&mut self, command: &str) -> u64 {
        writeln!(self.commands, "{command}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> u64 {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().parse().unwrap_or_else(|_| panic!("the program answered {line:?}"))
    }

    pub fn tell_to_end(mut self) {
        drop(self.commands);
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
#[ignore = "what the other tests start"]
fn obeys() {
    assert!(std::env::var_os(IS_PROGRAM).is_some(), "only the other tests start this");
    eprintln!("0");
    let mut tracked = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        let answer = match words[0] {
            "private" => map(number(1), MapFlags::PRIVATE),
            "shared" => map(number(1), MapFlags::SHARED),
            "file" => map_file(words[1]),
            "write" => {
                (1..words.len()).for_each(|at| write(number(at)));
                0
            }
            "read" => (1..words.len()).map(|at| read(number(at))).sum(),
            "threads" => {
                let threads: Vec<_> = (1..words.len())
                    .map(|at| {
                        let address = number(at);
                        std::thread::spawn(move || write(address))
                    })
                    .collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                0
            }
            "huge" => map_huge(number(1)),
            "churn" => {
                let (start, count) = (number(1), number(3));
                let threads: Vec<_> = (0..number(2))
                    .map(|thread| {
                        let first = start + thread * count * PAGE;
                        std::thread::spawn(move || {
                            (0..count).for_each(|at| write(first + at * PAGE))
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                0
            }
            "unmap" => {
                // SAFETY: the test that asks for it mapped it, and nobody uses it.
                unsafe { munmap(number(1) as *mut _, number(2) * PAGE) }.unwrap();
                0
            }
            "discard" => {
                let (start, len) = (number(1) as *mut _, number(2) * PAGE);
                // SAFETY: as above.
                unsafe { madvise(start, len, Advice::LinuxDontNeed) }.unwrap();
                0
            }
            "move" => {
                // SAFETY: as above.
                let to = unsafe {
                    mremap(
                        number(1) as *mut _,
                        number(2) * PAGE,
                        number(3) * PAGE,
                        MremapFlags::MAYMOVE,
                    )
                };
                to.unwrap() as usize
            }
            "track" => {
                tracked = Some(track(number(1), number(2)));
                0
            }
            "tracked" => pages_of(tracked.as_mut().unwrap(), number(1), number(2)),
            "fork" => fork(number(1)),
            "keep" => keep(number(1)),
            "wait" => wait(number(1) as i32, 0),
            "stopped" => wait(number(1) as i32, libc::WUNTRACED),
            "leave" => leave(),
            "exec" => exec(),
            other => panic!("no such command: {other}"),
        };
        eprintln!("{answer}");
    }
}

fn map(pages: usize, flags: MapFlags) -> usize {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping where there is none.
    unsafe { mmap_anonymous(std::ptr::null_mut(), pages * PAGE, rights, flags) }.unwrap() as usize
}

/// The address of memory in which a huge page could begin.
fn map_huge(pages: usize) -> usize {
    let start = map(pages + 512, MapFlags::PRIVATE).next_multiple_of(512 * PAGE);
    // SAFETY: inside what was just mapped.
    unsafe { madvise(start as *mut _, pages * PAGE, Advice::LinuxHugepage) }.unwrap();
    start
}

fn map_file(path: &str) -> usize {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let (len, rights) =
        (file.metadata().unwrap().len() as usize, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping where there is none, of a file that nobody cuts.
    unsafe { mmap(std::ptr::null_mut(), len, rights, MapFlags::SHARED, &file, 0) }.unwrap() as usize
}

fn write(address: usize) {
    // SAFETY: tests name addresses in what was mapped for them, and no two threads the same.
    unsafe { (address as *mut u8).write_volatile(1) };
}

fn read(address: usize) -> usize {
    // SAFETY: as in `write`.
    usize::from(unsafe { (address as *const u8).read_volatile() })
}

/// Protects pages as a recorder does, for the program's own use.
fn track(start: usize, pages: usize) -> (Watch, PageMap) {
    let watch = Watch::own().unwrap();
    watch.register(start as u64, (start + pages * PAGE) as u64).unwrap();
    let mut tracked = (watch, PageMap::open_own(64).unwrap());
    pages_of(&mut tracked, start, pages);
    tracked
}

/// How many pages were written since that was last asked.
fn pages_of((_, map): &mut (Watch, PageMap), start: usize, pages: usize) -> usize {
    let end = (start + pages * PAGE) as u64;
    let (runs, outcome) = map.take_written(Kept::Private, start as u64, end);
    let bytes: u64 = runs.iter().map(|run| run.end - run.start).sum();
    assert_eq!(outcome, Ok(end));
    bytes as usize / PAGE
}

/// Forks a child that writes the page and ends; then the program goes on.
fn fork(address: usize) -> usize {
    // SAFETY: the child only stores a byte and ends.
    match unsafe { libc::fork() } {
        0 => {
            write(address);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) }
        }
        child => wait(child, 0),
    }
}

fn wait(child: i32, flags: i32) -> usize {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    assert!(unsafe { libc::waitpid(child, &raw mut status, flags) } > 0);
    status as usize
}

/// A child that stops; when it goes on it writes the page and stops again, and then ends.
fn keep(address: usize) -> usize {
    let stop = || {
        // SAFETY: takes a number.
        assert_eq!(unsafe { libc::raise(libc::SIGSTOP) }, 0);
    };
    // SAFETY: the child only stops, stores a byte and ends.
    match unsafe { libc::fork() } {
        0 => {
            stop();
            write(address);
            stop();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) }
        }
        child => {
            wait(child, libc::WUNTRACED);
            child as usize
        }
    }
}

/// A child whose first thread ends and leaves another, which waits for as long as we run.
fn leave() -> usize {
    // SAFETY: the C library's memory can be used after a fork, and of ours the child uses no more
    // than a new thread.
    match unsafe { libc::fork() } {
        0 => {
            std::thread::spawn(|| {
                // SAFETY: takes numbers; the kernel ends the child with us.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                loop {
                    // SAFETY: takes nothing.
                    unsafe { libc::pause() };
                }
            });
            // SAFETY: ends this thread alone.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
            unreachable!()
        }
        child => child as usize,
    }
}

fn exec() -> usize {
    use std::os::unix::process::CommandExt;
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    panic!("{}", Command::new("/proc/self/exe").args(words).exec())
}
