//! The flip itself: threads are stopped by ptrace, changed, and released.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::frames::{self, Stack};
use super::memory::resident_heap;
use super::place::{Kind, Place};
use super::{registers, vectors};

/// The bytes to keep before and after a hit byte.
const AROUND: u64 = 1024;
/// The largest area of vector registers.
const MOST_VECTOR_BYTES: usize = 16 << 10;
/// The time to wait for a thread that can be hit.
const PATIENCE: Duration = Duration::from_secs(1);

/// A flip that was made.
#[derive(Clone, Debug)]
pub(crate) struct Strike {
    pub(crate) place: Place,
    /// The stacks of the stopped threads, beginning with the one at work.
    pub(crate) stacks: Vec<Stack>,
}

/// The reason why no bit was flipped.
#[derive(Debug)]
pub(crate) enum Missed {
    /// The process left the phase, or ended, first.
    Over,
    Failed(io::Error),
}

impl From<io::Error> for Missed {
    fn from(error: io::Error) -> Missed {
        match error.raw_os_error() {
            // The process or the thread has ended, or is about to.
            Some(libc::ESRCH | libc::ECHILD | libc::ENOENT | libc::EPERM) => Missed::Over,
            _ => Missed::Failed(error),
        }
    }
}

impl From<Errno> for Missed {
    fn from(error: Errno) -> Missed {
        io::Error::from(error).into()
    }
}

/// A stopped thread; it goes on when this is dropped.
///
/// The end of the process itself is left for its parent to wait for. The end of another thread is
/// waited for here, since a process with a dead traced thread cannot be waited for.
struct Stopped {
    thread: Pid,
    is_main: bool,
}

impl Stopped {
    fn stop(process: u32, thread: u32) -> Result<Stopped, Missed> {
        let stopped = Stopped { thread: Pid::from_raw(thread as i32), is_main: process == thread };
        ptrace::seize(stopped.thread, Options::empty())?;
        ptrace::interrupt(stopped.thread)?;
        let any = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::__WALL;
        match waitid(Id::Pid(stopped.thread), any)? {
            WaitStatus::Stopped(..) | WaitStatus::PtraceEvent(..) => {
                waitpid(stopped.thread, Some(WaitPidFlag::__WALL))?;
                Ok(stopped)
            }
            _ => Err(Missed::Over),
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if ptrace::detach(self.thread, None).is_err() && !self.is_main {
            // It was never seized, or it has ended.
            let _ = waitpid(self.thread, Some(WaitPidFlag::__WALL));
        }
    }
}

/// Flips a random bit in a place of `kind`, as soon as a thread is at work that `allows` accepts
/// when it is stopped; it is told whether that is the main thread. `is_over` ends the attempt.
pub(crate) fn strike(
    process: u32,
    kind: Kind,
    rng: &mut fastrand::Rng,
    is_over: impl Fn() -> bool,
    allows: impl Fn(bool) -> bool,
) -> Result<Strike, Missed> {
    let began = Instant::now();
    while !is_over() {
        if began.elapsed() > PATIENCE {
            return Err(Missed::Failed(io::Error::other("no thread could be hit")));
        }
        let running: Vec<u32> =
            threads(process)?.into_iter().filter(|thread| is_running(process, *thread)).collect();
        if running.is_empty() {
            continue;
        }
        let thread = running[rng.usize(..running.len())];
        let stopped = match Stopped::stop(process, thread) {
            Ok(stopped) => stopped,
            // Another thread may have ended, but not the process.
            Err(Missed::Over) => continue,
            Err(error) => return Err(error),
        };
        let regs = ptrace::getregs(stopped.thread)?;
        if is_over() {
            return Err(Missed::Over);
        }
        let is_main = thread == process;
        let can_be_hit = !registers::is_waiting(&regs) && (kind == Kind::Heap || allows(is_main));
        if !can_be_hit {
            drop(stopped);
            std::thread::sleep(Duration::from_micros(rng.u64(1..20)));
            continue;
        }
        return hit(process, kind, rng, stopped, regs);
    }
    Err(Missed::Over)
}

fn hit(
    process: u32,
    kind: Kind,
    rng: &mut fastrand::Rng,
    stopped: Stopped,
    mut regs: libc::user_regs_struct,
) -> Result<Strike, Missed> {
    let at_work = stopped.thread.as_raw() as u32;
    let stack = |thread: u32, regs: &libc::user_regs_struct| {
        frames::read(process, &name(process, thread), regs.rip, regs.rsp)
    };
    let mut stacks: Vec<Stack> = stack(at_work, &regs).into_iter().collect();
    let place = match kind {
        Kind::Register => {
            let (name, bit) = registers::flip(&mut regs, rng);
            ptrace::setregs(stopped.thread, regs)?;
            Place::Register { name, bit }
        }
        Kind::Vector => {
            let mut area = get_vectors(stopped.thread)?;
            let (name, bit) =
                vectors::flip(&mut area, rng).ok_or_else(|| io::Error::other("no vector registers"))?;
            set_vectors(stopped.thread, &mut area)?;
            Place::Vector { name, bit }
        }
        Kind::Heap => {
            let mut pointers = vec![regs.rsp];
            let mut others = Vec::new();
            for thread in threads(process)?.into_iter().filter(|thread| *thread != at_work) {
                // One that has just ended has no stack.
                let Ok(stopped) = Stopped::stop(process, thread) else { continue };
                let regs = ptrace::getregs(stopped.thread)?;
                pointers.push(regs.rsp);
                stacks.extend(stack(thread, &regs));
                others.push(stopped);
            }
            let pages = resident_heap(process, &pointers)?;
            if pages.is_empty() {
                return Err(io::Error::other("the process has no heap").into());
            }
            flip_memory(process, &pages, rng)?
        }
    };
    Ok(Strike { place, stacks })
}

/// Flips a bit in one of the pages.
fn flip_memory(process: u32, pages: &[u64], rng: &mut fastrand::Rng) -> io::Result<Place> {
    let page = pages[rng.usize(..pages.len())];
    let memory = File::options().read(true).write(true).open(format!("/proc/{process}/mem"))?;
    let size = rustix::param::page_size() as u64;
    let offset = rng.u64(..size);
    let bit = rng.u32(..8);
    let mut bytes = vec![0; size as usize];
    memory.read_exact_at(&mut bytes, page)?;
    let hit = offset as usize;
    let from = offset.saturating_sub(AROUND) as usize;
    let to = (offset + AROUND).min(size) as usize;
    let around = bytes[from..to].to_vec();
    memory.write_all_at(&[bytes[hit] ^ (1 << bit)], page + offset)?;
    Ok(Place::Heap { address: page + offset, bit, around, at: hit - from, pages: pages.len() })
}

fn threads(process: u32) -> io::Result<Vec<u32>> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"))?;
    Ok(tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect())
}

fn is_running(process: u32, thread: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/stat")).unwrap_or_default();
    state_of(&stat) == Some('R')
}

/// Returns the state in a line of `stat`: the letter after the name, which may contain anything.
fn state_of(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

fn name(process: u32, thread: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/comm")).unwrap_or_default();
    if thread == process { "main".to_owned() } else { name.trim().to_owned() }
}

fn get_vectors(thread: Pid) -> io::Result<Vec<u8>> {
    let mut area = vec![0; MOST_VECTOR_BYTES];
    let len = vectors_request(libc::PTRACE_GETREGSET, thread, &mut area)?;
    area.truncate(len);
    Ok(area)
}

fn set_vectors(thread: Pid, area: &mut [u8]) -> io::Result<()> {
    vectors_request(libc::PTRACE_SETREGSET, thread, area).map(drop)
}

/// Reads or writes the area, and returns its length.
fn vectors_request(request: libc::c_uint, thread: Pid, area: &mut [u8]) -> io::Result<usize> {
    const NT_X86_XSTATE: libc::c_int = 0x202;
    let mut part = libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: area.len() };
    // SAFETY: the two requests take a number that names the registers and a pointer to an `iovec`,
    // which lives until the call returns. The kernel accesses at most `iov_len` bytes of `area`,
    // which is borrowed mutably, and writes the length to the `iovec`.
    let result = unsafe { libc::ptrace(request, thread.as_raw(), NT_X86_XSTATE, &raw mut part) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(part.iov_len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_follows_the_name() {
        assert_eq!(state_of("12 (a) b) R 1 2"), Some('R'));
        assert_eq!(state_of("12 (tamis-flush) S 1 2"), Some('S'));
        assert_eq!(state_of(""), None);
    }

    #[test]
    fn a_busy_process_is_hit_in_every_kind_of_place() {
        for kind in Kind::ALL {
            let mut child =
                std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
            // It has no heap until the shell has begun.
            while resident_heap(child.id(), &[]).unwrap().is_empty() {
                std::thread::yield_now();
            }
            let mut rng = fastrand::Rng::with_seed(4);
            let strike = strike(child.id(), kind, &mut rng, || false, |is_main| is_main);
            // The flip may have ended it.
            let _ = child.kill();
            child.wait().unwrap();
            let strike = strike.unwrap();
            assert_eq!(strike.stacks[0].thread, "main");
            let fits = match strike.place {
                Place::Register { .. } => kind == Kind::Register,
                Place::Vector { .. } => kind == Kind::Vector,
                Place::Heap { pages, .. } => kind == Kind::Heap && pages > 0,
            };
            assert!(fits, "{kind:?}");
        }
    }

    #[test]
    fn a_process_that_has_ended_is_missed() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let mut rng = fastrand::Rng::with_seed(4);
        assert!(strike(child.id(), Kind::Heap, &mut rng, || false, |_| true).is_err());
    }
}
