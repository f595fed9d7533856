//! What a thread was doing: names of functions, found by the addresses on its stack.
//!
//! Words of the stack that point into the program are taken for return addresses, so the list may
//! have callers that have already returned.

use std::os::unix::fs::FileExt as _;

use super::memory::read_mappings;

/// The words of the stack to look at.
const WORDS: usize = 512;
/// The directory of all sources but those of dependencies.
const SOURCES: &str = "/crates/";
/// The most functions to name.
const MOST_NAMES: usize = 24;

/// Addresses in the program, relative to its start, each of the byte after an instruction; the first
/// one is that of the thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stack {
    pub(crate) thread: String,
    pub(crate) addresses: Vec<u64>,
    /// The file that the instruction pointer is in, if it is not the program.
    pub(crate) outside: Option<String>,
}

/// Returns the start of a process's own code.
pub(crate) fn code_start(process: u32) -> Option<u64> {
    let program = std::fs::read_link(format!("/proc/{process}/exe")).ok()?;
    let program = program.to_string_lossy();
    let mappings = read_mappings(process).ok()?;
    mappings.iter().find(|mapping| mapping.path == program).map(|mapping| mapping.range.start)
}

/// Reads the stack of a stopped thread.
pub(super) fn read(process: u32, thread: &str, rip: u64, rsp: u64) -> Option<Stack> {
    let program = std::fs::read_link(format!("/proc/{process}/exe")).ok()?;
    let program = program.to_string_lossy();
    let mappings = read_mappings(process).ok()?;
    let start = mappings.iter().find(|mapping| mapping.path == program)?.range.start;
    let is_code = |address: &u64| {
        let mut code = mappings.iter().filter(|mapping| mapping.path == program && mapping.executable);
        code.any(|mapping| mapping.range.contains(address))
    };
    let mut bytes = vec![0; 8 * WORDS];
    let memory = std::fs::File::open(format!("/proc/{process}/mem")).ok()?;
    // Less is left at the end of a stack.
    let read = memory.read_at(&mut bytes, rsp).unwrap_or(0);
    let words = bytes[..read].as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    let mut addresses: Vec<u64> = Vec::new();
    let outside = match is_code(&rip) {
        true => {
            // Like a return address, it follows the byte to look for.
            addresses.push(rip + 1 - start);
            None
        }
        false => {
            let there = mappings.iter().find(|mapping| mapping.range.contains(&rip));
            Some(there.map_or("nowhere".to_owned(), |mapping| mapping.path.clone()))
        }
    };
    addresses.extend(words.filter(is_code).map(|address| address - start));
    Some(Stack { thread: thread.to_owned(), addresses, outside })
}

/// Names the functions of a stack that belong to the engine or to its callers, innermost first,
/// with their places in the source. `start` is where the code of this process, which runs the same
/// program, begins.
pub(crate) fn names(stack: &Stack, start: u64) -> Vec<String> {
    let mut names: Vec<String> = stack.outside.iter().map(|file| format!("in {file}")).collect();
    for address in &stack.addresses {
        if names.len() >= MOST_NAMES {
            break;
        }
        backtrace::resolve((start + address) as *mut std::ffi::c_void, |symbol| {
            let file = symbol.filename().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
            let Some((_, file)) = file.rsplit_once(SOURCES) else { return };
            let name = symbol.name().map(|name| format!("{name:#}")).unwrap_or_default();
            let name = name.split('<').next().unwrap_or_default();
            names.push(format!("{name} ({file}:{})", symbol.lineno().unwrap_or(0)));
        });
        names.dedup();
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_this_program_have_names() {
        let start = code_start(std::process::id()).unwrap();
        let here = functions_of_this_program_have_names as fn() as usize as u64;
        let stack = Stack { addresses: vec![here + 1 - start], ..Stack::default() };
        assert!(
            names(&stack, start)[0].contains("tamis-faults/src/strike/frames.rs"),
            "{:?}",
            names(&stack, start)
        );
    }
}
