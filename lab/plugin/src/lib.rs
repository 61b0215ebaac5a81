//! The QEMU plugin around the lab's hardware model, with its own guest clock.
