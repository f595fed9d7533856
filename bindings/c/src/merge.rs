//! Merge operators written in C.

use std::ffi::{CStr, c_char, c_void};

use tamis::operators::{MergeError, MergeOperator};
use tamis_bindings::Failure;

use crate::border::{bytes, text};

/// Where a merge operator puts its result. Valid during the callback only.
#[derive(Debug, Default)]
pub struct tamis_merge_result {
    value: Option<Vec<u8>>,
    trouble: Option<String>,
}

/// Sets the result of a merge: the bytes are copied. The last call counts. Reports whether the arguments were valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_merge_result_set(
    result: *mut tamis_merge_result,
    value: *const c_void,
    value_len: usize,
) -> bool {
    // SAFETY: null, or valid by contract.
    let (Some(result), Ok(value)) = (unsafe { result.as_mut() }, unsafe { bytes(value, value_len, "value") })
    else {
        return false;
    };
    result.value = Some(value.to_vec());
    true
}

/// Says why there is no result: the text becomes part of the error of whoever reads the key. Reports whether the arguments were valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_merge_result_fail(
    result: *mut tamis_merge_result,
    what: *const c_char,
) -> bool {
    // SAFETY: null, or valid by contract.
    let Some(result) = (unsafe { result.as_mut() }) else { return false };
    if what.is_null() {
        return false;
    }
    // SAFETY: not null, and a C string by contract. A reason that is not UTF-8 is still worth having.
    result.trouble = Some(unsafe { CStr::from_ptr(what) }.to_string_lossy().into_owned());
    true
}

/// A merge operator: how operands that were merged into a key become its value.
///
/// All its functions may be called by any thread, several at a time, until `destroy` was. They must be pure: the same arguments give the
/// same result, on every machine and in every later version of the program (one that has to change gets a new name); and combining
/// operands in several steps gives what combining them at once gives. They must return normally: no longjmp, no C++ exception, no
/// end of the thread. They must not call functions of this library other than tamis_merge_result_set and tamis_merge_result_fail.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tamis_merge_operator {
    /// The name for the option "merge_operator": 1 to 64 letters, digits, or any of -_.:/. Copied.
    pub name: *const c_char,
    /// The first argument of the functions below; may be NULL.
    pub context: *mut c_void,
    /// Applies `count` operands, at least one, oldest first, to the value `base`, which is NULL if the key has none (an empty value is not
    /// NULL). Sets the result and returns true; or returns false, after tamis_merge_result_fail, if it cannot interpret them: reads
    /// of the key fail then until it is put or deleted. Required.
    pub merge: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            key: *const c_void,
            key_len: usize,
            base: *const c_void,
            base_len: usize,
            operands: *const *const c_void,
            operand_lens: *const usize,
            count: usize,
            result: *mut tamis_merge_result,
        ) -> bool,
    >,
    /// Combines at least two operands, oldest first, into one that has the same effect on every base, sets it and returns true; or
    /// returns false if there is none. NULL: there never is.
    pub partial_merge: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            key: *const c_void,
            key_len: usize,
            operands: *const *const c_void,
            operand_lens: *const usize,
            count: usize,
            result: *mut tamis_merge_result,
        ) -> bool,
    >,
    /// Called once, when the options and all databases that were opened with them are gone. May be NULL.
    pub destroy: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

/// A [`tamis_merge_operator`] as the engine calls it.
#[derive(Debug)]
pub(crate) struct CMerge {
    name: String,
    functions: tamis_merge_operator,
}

// SAFETY: the header asks that all functions may be called by any thread, several at a time.
unsafe impl Send for CMerge {}
// SAFETY: as above.
unsafe impl Sync for CMerge {}

impl CMerge {
    /// Takes an operator over.
    ///
    /// # Safety
    /// It is as the header asks.
    pub(crate) unsafe fn new(given: &tamis_merge_operator) -> Result<CMerge, Failure> {
        if given.merge.is_none() {
            return Err(Failure::argument("merge is a null pointer"));
        }
        // SAFETY: by contract.
        let name = unsafe { text(given.name, "name") }?.to_owned();
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
        if !(1..=64).contains(&name.len()) || !name.bytes().all(valid) {
            return Err(Failure::argument(format!(
                "`{name}` cannot name a merge operator: names are 1 to 64 letters, digits, or any of -_.:/"
            )));
        }
        Ok(CMerge { name, functions: *given })
    }
}

impl Drop for CMerge {
    fn drop(&mut self) {
        if let Some(destroy) = self.functions.destroy {
            // SAFETY: the last call, with the operator's own context.
            unsafe { destroy(self.functions.context) };
        }
    }
}

fn pointers(operands: &[&[u8]]) -> (Vec<*const c_void>, Vec<usize>) {
    operands.iter().map(|operand| (operand.as_ptr().cast::<c_void>(), operand.len())).unzip()
}

impl MergeOperator for CMerge {
    fn name(&self) -> &str {
        &self.name
    }

    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        let (data, lens) = pointers(operands);
        let (base, base_len) = base.map_or((std::ptr::null(), 0), |base| (base.as_ptr(), base.len()));
        let mut result = tamis_merge_result::default();
        let merge = self.functions.merge.expect("checked in `new`");
        // SAFETY: all pointers are valid during the call, with their lengths.
        let done = unsafe {
            merge(
                self.functions.context,
                key.as_ptr().cast(),
                key.len(),
                base.cast(),
                base_len,
                data.as_ptr(),
                lens.as_ptr(),
                operands.len(),
                &mut result,
            )
        };
        let value = result.value.filter(|_| done);
        value.ok_or_else(|| {
            let trouble = result.trouble.unwrap_or_else(|| "it gave no result".to_owned());
            MergeError::new(format!("{}: {trouble}", self.name))
        })
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let partial_merge = self.functions.partial_merge?;
        let (data, lens) = pointers(operands);
        let mut result = tamis_merge_result::default();
        // SAFETY: all pointers are valid during the call, with their lengths.
        let done = unsafe {
            partial_merge(
                self.functions.context,
                key.as_ptr().cast(),
                key.len(),
                data.as_ptr(),
                lens.as_ptr(),
                operands.len(),
                &mut result,
            )
        };
        result.value.filter(|_| done)
    }
}
