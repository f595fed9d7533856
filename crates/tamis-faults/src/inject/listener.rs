//! The interface to the kernel: installing a filter, receiving calls, answering them.

use std::io;

/// A call waiting for an answer.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) number: i32,
    pub(super) args: [u64; 6],
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    GoOn,
    /// It is not executed, and returns zero.
    Pretend,
    /// It is not executed, and returns this error.
    Fail(i32),
    /// It is executed, and returns this error.
    DoAndFail(i32),
    /// It is executed for half of the length in its third argument.
    DoHalf,
    /// The process is killed before it is executed.
    Kill,
}

/// Passes the calls selected by `program`, from this thread and from threads that it starts later,
/// to a listener. Returns the listener's descriptor.
pub(super) fn install(program: &[libc::sock_filter]) -> io::Result<i32> {
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the first call takes numbers only. The second takes a pointer to `filter`, which
    // lives until it returns and describes `program`; the kernel copies both and writes to neither.
    let descriptor = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &filter)
    };
    if descriptor < 0 { Err(io::Error::last_os_error()) } else { Ok(descriptor as i32) }
}

/// Receives calls until the process ends.
#[derive(Debug)]
pub(super) struct Listener {
    descriptor: i32,
}

impl Listener {
    pub(super) fn new(descriptor: i32) -> Listener {
        Listener { descriptor }
    }

    /// Answers every call with `decide`. Returns only after the last affected thread has ended.
    pub(super) fn serve(&self, decide: impl Fn(&Call) -> Answer) {
        loop {
            // SAFETY: the struct consists of numbers, for which zero bytes are valid; the kernel
            // requires them here.
            let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: the request writes one `seccomp_notif` to the address of one.
            if unsafe { libc::ioctl(self.descriptor, libc::SECCOMP_IOCTL_NOTIF_RECV, &mut asked) } != 0 {
                match io::Error::last_os_error().raw_os_error() {
                    // Interrupted, or the calling thread is gone.
                    Some(libc::EINTR | libc::ENOENT) => continue,
                    _ => return,
                }
            }
            let call = Call { number: asked.data.nr, args: asked.data.args };
            self.answer(asked.id, &call, decide(&call));
        }
    }

    fn answer(&self, id: u64, call: &Call, answer: Answer) {
        // SAFETY: as for `seccomp_notif` above.
        let mut reply: libc::seccomp_notif_resp = unsafe { std::mem::zeroed() };
        reply.id = id;
        match answer {
            Answer::GoOn => reply.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
            // Without an error, the value is returned, which is zero.
            Answer::Pretend => {}
            Answer::Fail(error) => reply.error = -error,
            Answer::DoAndFail(error) => {
                // Its own error would not be the planned one.
                let _ = perform(call);
                reply.error = -error;
            }
            Answer::DoHalf => {
                let mut half = call.args;
                half[2] = (half[2] / 2).max(1).min(half[2]);
                match perform(&Call { number: call.number, args: half }) {
                    Ok(done) => reply.val = done,
                    Err(error) => reply.error = -error,
                }
            }
            Answer::Kill => {
                // SAFETY: takes numbers only, and does not return.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
        }
        // The calling thread may be gone.
        // SAFETY: the request reads one `seccomp_notif_resp` from the address of one.
        unsafe { libc::ioctl(self.descriptor, libc::SECCOMP_IOCTL_NOTIF_SEND, &mut reply) };
    }
}

/// Executes a call on behalf of the calling thread, which belongs to this process: descriptors and
/// addresses are valid here.
fn perform(call: &Call) -> Result<i64, i32> {
    let [a, b, c, d, e, f] = call.args;
    // SAFETY: the calling thread made this call with these arguments, waits for its result, and
    // keeps alive what they point to; here it accesses the same memory as it would there.
    let result = unsafe { libc::syscall(libc::c_long::from(call.number), a, b, c, d, e, f) };
    match result {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
        done => Ok(done),
    }
}
