//! The general registers.

use libc::user_regs_struct;

/// The flags that instructions set and read: carry, parity, adjust, zero, sign, direction,
/// overflow. The others control the processor, or programs cannot change them.
const FLAGS: [u32; 7] = [0, 2, 4, 6, 7, 10, 11];

type Field = fn(&mut user_regs_struct) -> &mut u64;

const REGISTERS: [(&str, Field); 18] = [
    ("rax", |regs| &mut regs.rax),
    ("rbx", |regs| &mut regs.rbx),
    ("rcx", |regs| &mut regs.rcx),
    ("rdx", |regs| &mut regs.rdx),
    ("rsi", |regs| &mut regs.rsi),
    ("rdi", |regs| &mut regs.rdi),
    ("rbp", |regs| &mut regs.rbp),
    ("rsp", |regs| &mut regs.rsp),
    ("r8", |regs| &mut regs.r8),
    ("r9", |regs| &mut regs.r9),
    ("r10", |regs| &mut regs.r10),
    ("r11", |regs| &mut regs.r11),
    ("r12", |regs| &mut regs.r12),
    ("r13", |regs| &mut regs.r13),
    ("r14", |regs| &mut regs.r14),
    ("r15", |regs| &mut regs.r15),
    ("rip", |regs| &mut regs.rip),
    ("rflags", |regs| &mut regs.eflags),
];

/// Flips a random bit, and returns where.
pub(super) fn flip(regs: &mut user_regs_struct, rng: &mut fastrand::Rng) -> (&'static str, u32) {
    let (name, field) = REGISTERS[rng.usize(..REGISTERS.len())];
    let bit = if name == "rflags" { FLAGS[rng.usize(..FLAGS.len())] } else { rng.u32(..64) };
    *field(regs) ^= 1 << bit;
    (name, bit)
}

/// Reports whether the thread is about to wait, or has just been woken: it is not at work then, and
/// its registers may be the kernel's, which begins an interrupted call again.
pub(super) fn is_waiting(regs: &user_regs_struct) -> bool {
    const RESTARTS: [i64; 4] = [-512, -513, -514, -516];
    let call = regs.orig_rax as i64;
    call == libc::SYS_futex || (call >= 0 && RESTARTS.contains(&(regs.rax as i64)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn zero() -> user_regs_struct {
        // SAFETY: the struct consists of integers, for which zero bytes are valid.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn one_bit_changes_and_every_register_is_hit() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut hit = BTreeSet::new();
        for _ in 0..2000 {
            let mut regs = zero();
            let (name, bit) = flip(&mut regs, &mut rng);
            let set: u32 = REGISTERS.iter().map(|(_, field)| field(&mut regs).count_ones()).sum();
            assert_eq!(set, 1);
            assert!(name != "rflags" || FLAGS.contains(&bit));
            hit.insert(name);
        }
        assert_eq!(hit.len(), REGISTERS.len());
    }

    #[test]
    fn a_waiting_thread_is_recognized() {
        let mut regs = zero();
        assert!(!is_waiting(&regs));
        regs.rax = -512_i64 as u64;
        assert!(is_waiting(&regs));
        regs.orig_rax = u64::MAX;
        assert!(!is_waiting(&regs));
        (regs.rax, regs.orig_rax) = (0, libc::SYS_futex as u64);
        assert!(is_waiting(&regs));
    }
}
