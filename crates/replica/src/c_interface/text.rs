//! Messages for C: the calling thread's last error, and lines written into the caller's buffer.

#![allow(unsafe_code, reason = "writes into a buffer of the caller's")]

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt::Display;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Stores the calling thread's error message and returns `None`.
pub(super) fn fail<T>(message: impl Display) -> Option<T> {
    let text: Vec<u8> = message.to_string().bytes().filter(|&byte| byte != 0).collect();
    LAST_ERROR.set(CString::new(text).unwrap_or_default());
    None
}

/// The error message of the calling thread's last failed function, valid until the next one fails.
/// Empty before the first failure.
#[unsafe(no_mangle)]
pub extern "C" fn rondpoint_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

/// Writes as much of a line as fits, with a 0 at its end. Returns the length of the whole line.
///
/// # Safety
/// `buffer` has `capacity` writable bytes; it may be null where that is 0.
pub(super) unsafe fn write(line: &impl Display, buffer: *mut c_char, capacity: usize) -> usize {
    let text = line.to_string();
    if capacity > 0 {
        let most = text.len().min(capacity - 1);
        let cut = (0..=most).rev().find(|&cut| text.is_char_boundary(cut)).unwrap_or(0);
        // SAFETY: the text and its 0 fit, and the caller's buffer is no part of a string of ours.
        unsafe {
            buffer.copy_from_nonoverlapping(text.as_ptr().cast(), cut);
            buffer.add(cut).write(0);
        }
    }
    text.len()
}
