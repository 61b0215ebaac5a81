//! The imperative shell: what Rondpoint reads from and writes to Linux.
