//! The seccomp filter that selects the system calls decided by the listener.
//!
//! Only calls in [`SITES`] are, except those on the three standard descriptors, through which the
//! worker reports, and anonymous mappings, which the allocator creates while it holds its lock.

use std::mem::offset_of;

use super::sites::SITES;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const JUMP_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const JUMP_GREATER: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const JUMP_ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// The highest standard descriptor.
const LAST_STANDARD: u32 = 2;

fn step(code: u32, k: u32, jump_true: u8, jump_false: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: jump_true, jf: jump_false, k }
}

/// Loads the lower half of an argument, which contains descriptors and flags completely.
fn load_argument(index: usize) -> libc::sock_filter {
    let at = offset_of!(libc::seccomp_data, args) + 8 * index;
    let low_half = if cfg!(target_endian = "big") { 4 } else { 0 };
    step(LOAD, (at + low_half) as u32, 0, 0)
}

/// Returns the program in the kernel's form.
pub(super) fn program() -> Vec<libc::sock_filter> {
    let mut program = vec![step(LOAD, offset_of!(libc::seccomp_data, nr) as u32, 0, 0)];
    // After the comparisons: allow, mapping (3 steps), descriptor (2 steps), notify.
    let comparisons = SITES.len();
    for (at, site) in SITES.iter().enumerate() {
        let to_allow = comparisons - at - 1;
        let target = match site.number {
            libc::SYS_mmap => to_allow + 1,
            // The first argument is an address.
            libc::SYS_madvise => to_allow + 5,
            _ => to_allow + 3,
        };
        program.push(step(JUMP_EQUAL, site.number as u32, target as u8, 0));
    }
    program.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    // A mapping: is it of a file?
    program.push(load_argument(3));
    program.push(step(JUMP_ANY_BIT, libc::MAP_ANONYMOUS as u32, 3, 2));
    // Anything else: is it on a standard descriptor? Paths are addresses, or begin at AT_FDCWD,
    // which is negative.
    program.push(load_argument(0));
    program.push(step(JUMP_GREATER, LAST_STANDARD, 0, 1));
    program.push(step(RETURN, libc::SECCOMP_RET_USER_NOTIF, 0, 0));
    program.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program like the kernel.
    fn run(number: libc::c_long, args: [u64; 6]) -> u32 {
        let program = program();
        let (mut at, mut word) = (0, 0);
        loop {
            let now = program[at];
            at += 1;
            match u32::from(now.code) {
                LOAD if now.k == offset_of!(libc::seccomp_data, nr) as u32 => word = number as u32,
                LOAD => word = args[(now.k as usize - offset_of!(libc::seccomp_data, args)) / 8] as u32,
                JUMP_EQUAL => at += usize::from(if word == now.k { now.jt } else { now.jf }),
                JUMP_GREATER => at += usize::from(if word > now.k { now.jt } else { now.jf }),
                JUMP_ANY_BIT => at += usize::from(if word & now.k != 0 { now.jt } else { now.jf }),
                RETURN => return now.k,
                other => panic!("code {other}"),
            }
        }
    }

    #[test]
    fn calls_on_files_are_decided_and_others_allowed() {
        const DECIDED: u32 = libc::SECCOMP_RET_USER_NOTIF;
        const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;
        for site in SITES.iter().filter(|site| site.number != libc::SYS_mmap) {
            assert_eq!(run(site.number, [7, 0, 0, 0, 0, 0]), DECIDED, "{}", site.name);
        }
        assert_eq!(run(libc::SYS_openat, [libc::AT_FDCWD as u64, 0, 0, 0, 0, 0]), DECIDED);
        assert_eq!(run(libc::SYS_write, [1, 0, 0, 0, 0, 0]), ALLOWED);
        assert_eq!(run(libc::SYS_mmap, [0, 4096, 1, libc::MAP_SHARED as u64, 9, 0]), DECIDED);
        let memory = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        assert_eq!(run(libc::SYS_mmap, [0, 4096, 3, memory, u64::MAX, 0]), ALLOWED);
        for other in [libc::SYS_futex, libc::SYS_brk, libc::SYS_ioctl, libc::SYS_exit_group] {
            assert_eq!(run(other, [7, 0, 0, 0, 0, 0]), ALLOWED, "{other}");
        }
    }
}
