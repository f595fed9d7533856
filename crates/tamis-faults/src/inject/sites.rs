//! The system calls that can be made to fail, and their failures.

use super::plan::Errno;

/// One kind of system call.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) name: &'static str,
    pub(crate) number: libc::c_long,
    /// Possible errors of the kernel that are tried.
    pub(crate) errors: &'static [Errno],
    /// Whether the call may take effect and fail nevertheless, as on a device or network file
    /// system that lost the answer.
    pub(crate) after: bool,
    /// Whether it may transfer only half: the length is the third argument.
    pub(crate) short: bool,
    /// Whether it changes files, so that kills before and after it leave different states.
    changes: bool,
}

const fn site(name: &'static str, number: libc::c_long, errors: &'static [Errno]) -> Site {
    Site { name, number, errors, after: false, short: false, changes: false }
}

/// Describes a call that changes files, and may take effect without being acknowledged.
const fn change(name: &'static str, number: libc::c_long, errors: &'static [Errno]) -> Site {
    Site { after: true, changes: true, ..site(name, number, errors) }
}

const fn short(site: Site) -> Site {
    Site { short: true, ..site }
}

use Errno::*;
const OPEN: &[Errno] = &[EIO, ENOSPC, EMFILE, ENFILE, EINTR, EDQUOT, EROFS, EACCES, ENOMEM];
const READ: &[Errno] = &[EIO, EINTR, EAGAIN];
const WRITE: &[Errno] = &[EIO, ENOSPC, EINTR, EAGAIN, EDQUOT, EROFS];
const SYNC: &[Errno] = &[EIO, ENOSPC, EINTR, EDQUOT, EROFS];
const NAME: &[Errno] = &[EIO, ENOSPC, EDQUOT, EROFS, EACCES];
const LOOK: &[Errno] = &[EIO, EACCES, ENOMEM];
const MAP: &[Errno] = &[ENOMEM, EMFILE, EAGAIN];

/// Every kind of call on files, whether or not the engine makes it at present.
pub(crate) const SITES: &[Site] = &[
    site("openat", libc::SYS_openat, OPEN),
    short(site("read", libc::SYS_read, READ)),
    short(site("pread64", libc::SYS_pread64, READ)),
    site("preadv", libc::SYS_preadv, READ),
    short(change("write", libc::SYS_write, WRITE)),
    short(change("pwrite64", libc::SYS_pwrite64, WRITE)),
    change("writev", libc::SYS_writev, WRITE),
    change("pwritev", libc::SYS_pwritev, WRITE),
    change("fsync", libc::SYS_fsync, SYNC),
    change("fdatasync", libc::SYS_fdatasync, SYNC),
    change("sync_file_range", libc::SYS_sync_file_range, SYNC),
    change("ftruncate", libc::SYS_ftruncate, WRITE),
    change("fallocate", libc::SYS_fallocate, WRITE),
    #[cfg(target_arch = "x86_64")]
    change("rename", libc::SYS_rename, NAME),
    change("renameat", libc::SYS_renameat, NAME),
    change("renameat2", libc::SYS_renameat2, NAME),
    #[cfg(target_arch = "x86_64")]
    change("unlink", libc::SYS_unlink, NAME),
    change("unlinkat", libc::SYS_unlinkat, NAME),
    #[cfg(target_arch = "x86_64")]
    change("rmdir", libc::SYS_rmdir, NAME),
    #[cfg(target_arch = "x86_64")]
    change("link", libc::SYS_link, NAME),
    change("linkat", libc::SYS_linkat, NAME),
    #[cfg(target_arch = "x86_64")]
    change("mkdir", libc::SYS_mkdir, NAME),
    change("mkdirat", libc::SYS_mkdirat, NAME),
    change("copy_file_range", libc::SYS_copy_file_range, WRITE),
    change("sendfile", libc::SYS_sendfile, WRITE),
    site("mmap", libc::SYS_mmap, MAP),
    site("statx", libc::SYS_statx, LOOK),
    #[cfg(target_arch = "x86_64")]
    site("stat", libc::SYS_stat, LOOK),
    site("fstat", libc::SYS_fstat, LOOK),
    site("newfstatat", libc::SYS_newfstatat, LOOK),
    site("statfs", libc::SYS_statfs, LOOK),
    site("fstatfs", libc::SYS_fstatfs, LOOK),
    site("getdents64", libc::SYS_getdents64, LOOK),
    site("lseek", libc::SYS_lseek, LOOK),
    site("flock", libc::SYS_flock, &[EINTR, EAGAIN, ENOLCK]),
    site("fadvise64", libc::SYS_fadvise64, LOOK),
    site("madvise", libc::SYS_madvise, &[EAGAIN, ENOMEM]),
    site("fcntl", libc::SYS_fcntl, &[EINTR, EMFILE]),
];

/// Returns the index of a call in [`SITES`].
pub(super) fn find(number: i32) -> Option<usize> {
    SITES.iter().position(|site| site.number == libc::c_long::from(number))
}

/// Returns the index of the call with this name.
pub(super) fn named(name: &str) -> Option<usize> {
    SITES.iter().position(|site| site.name == name)
}

/// Reports whether a call makes files durable.
pub(super) fn is_sync(site: &Site) -> bool {
    matches!(site.number, libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_sync_file_range)
}

/// Reports whether a call changes files.
pub(super) fn changes_files(site: &Site, args: &[u64; 6]) -> bool {
    // The flags are an int: the upper half of the register is ignored.
    let creates = || args[2] as u32 & (libc::O_CREAT | libc::O_TRUNC) as u32 != 0;
    site.changes || (site.number == libc::SYS_openat && creates())
}
