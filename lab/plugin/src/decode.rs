// SPDX-License-Identifier: GPL-2.0-or-later
//! The few x86 instructions that mean something to the lab, told by their bytes.
//!
//! Markers are exchanges of a register with itself: harmless anywhere, emitted by no compiler.

/// An instruction that needs attention when it executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// `xchg %rcx,%rcx`: from here on every access is modelled.
    ModelOn,
    /// `xchg %rdx,%rdx`: the modelled part is over.
    ModelOff,
    /// `xchg %rsi,%rsi`: export this CPU's counters (`RP_MARKER_READ`).
    ReadCounters,
    /// `xchg %rdi,%rdi`: look at this CPU's sampling slots (`RP_MARKER_SLOTS`).
    LoadSlots,
    /// `xchg %rbp,%rbp`: export nodes and links (`RP_MARKER_NODES`).
    ReadNodes,
    /// `xchg %rbx,%rbx`: look at the price of what this CPU executes (`RP_MARKER_PRICE`).
    Price,
    /// PAUSE: a spinning CPU yields its pipeline.
    Pause,
    /// A write of CR3: another address space.
    AddressSpace,
    /// INVLPG or INVPCID: translations go.
    Invalidate,
}

/// The longest prefix of an instruction that `classify` looks at.
pub(crate) const LONGEST: usize = 8;

/// What the instruction means to the lab, if anything.
pub(crate) fn classify(bytes: &[u8]) -> Option<Special> {
    match bytes {
        [0x48, 0x87, register] => match register {
            0xc9 => Some(Special::ModelOn),
            0xd2 => Some(Special::ModelOff),
            0xf6 => Some(Special::ReadCounters),
            0xff => Some(Special::LoadSlots),
            0xed => Some(Special::ReadNodes),
            0xdb => Some(Special::Price),
            _ => None,
        },
        [0xf3, 0x90] => Some(Special::Pause),
        _ => classify_system(bytes),
    }
}

/// System instructions, which may carry operand-size and REX prefixes.
fn classify_system(bytes: &[u8]) -> Option<Special> {
    let is_prefix = |byte: &&u8| matches!(**byte, 0x66 | 0xf2 | 0xf3 | 0x40..=0x4f);
    let prefixes = bytes.iter().take_while(is_prefix).count();
    match &bytes[prefixes..] {
        [0x0f, 0x22, register, ..] if (register >> 3) & 7 == 3 => Some(Special::AddressSpace),
        [0x0f, 0x01, modrm, ..] if (modrm >> 3) & 7 == 7 && modrm >> 6 != 3 => {
            Some(Special::Invalidate)
        }
        [0x0f, 0x38, 0x82, ..] if bytes[..prefixes].contains(&0x66) => Some(Special::Invalidate),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_and_system_instructions_are_told_from_their_neighbours() {
        let cases: &[(&[u8], Option<Special>)] = &[
            (&[0x48, 0x87, 0xc9], Some(Special::ModelOn)),
            (&[0x48, 0x87, 0xd2], Some(Special::ModelOff)),
            (&[0x48, 0x87, 0xf6], Some(Special::ReadCounters)),
            (&[0x48, 0x87, 0xff], Some(Special::LoadSlots)),
            (&[0x48, 0x87, 0xed], Some(Special::ReadNodes)),
            (&[0x48, 0x87, 0xdb], Some(Special::Price)),
            (&[0x48, 0x87, 0xc1], None), // xchg %rax,%rcx
            (&[0x87, 0xc9], None),       // 32-bit exchange
            (&[0xf3, 0x90], Some(Special::Pause)),
            (&[0x90], None),                                              // nop
            (&[0x0f, 0x22, 0xd8], Some(Special::AddressSpace)),           // mov %rax,%cr3
            (&[0x41, 0x0f, 0x22, 0xdc], Some(Special::AddressSpace)),     // mov %r12,%cr3
            (&[0x0f, 0x22, 0xe0], None),                                  // mov %rax,%cr4
            (&[0x0f, 0x20, 0xd8], None),                                  // mov %cr3,%rax
            (&[0x0f, 0x01, 0x38], Some(Special::Invalidate)),             // invlpg (%rax)
            (&[0x0f, 0x01, 0xf8], None),                                  // swapgs
            (&[0x66, 0x0f, 0x38, 0x82, 0x01], Some(Special::Invalidate)), // invpcid
            (&[0x0f, 0x38, 0x82, 0x01], None),
            (&[], None),
        ];
        for (bytes, expected) in cases {
            assert_eq!(classify(bytes), *expected, "{bytes:02x?}");
        }
    }
}
