//! How much one input may cost.

use std::io;

/// What is left of the bytes and items that one input may cost. Several files of one command share
/// one budget, so that their sum is bounded too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    bytes: Allowance,
    items: Allowance,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Allowance {
    limit: u64,
    left: u64,
}

/// An input that costs more than its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {limit} {unit} in all")]
pub struct OverBudget {
    /// The budget as it was at first.
    pub limit: u64,
    /// `bytes` or `items`.
    pub unit: &'static str,
}

impl From<OverBudget> for io::Error {
    fn from(error: OverBudget) -> Self {
        Self::new(io::ErrorKind::FileTooLarge, error)
    }
}

impl Allowance {
    const fn new(limit: u64) -> Self {
        Self { limit, left: limit }
    }

    /// A refused amount uses up the rest: the next one is refused too.
    fn take(&mut self, amount: u64, unit: &'static str) -> Result<(), OverBudget> {
        let enough = self.left.checked_sub(amount);
        self.left = enough.unwrap_or(0);
        enough.map(drop).ok_or(OverBudget { limit: self.limit, unit })
    }
}

impl Budget {
    /// A budget of bytes to read and of items to expand them to.
    #[must_use]
    pub const fn new(bytes: u64, items: u64) -> Self {
        Self { bytes: Allowance::new(bytes), items: Allowance::new(items) }
    }

    /// Bytes that may still be read.
    #[must_use]
    pub fn bytes_left(&self) -> u64 {
        self.bytes.left
    }

    /// Charges bytes.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn take_bytes(&mut self, bytes: u64) -> Result<(), OverBudget> {
        self.bytes.take(bytes, "bytes")
    }

    /// Charges items: numbers of a range, pages, accesses, words of a set.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn take_items(&mut self, items: u64) -> Result<(), OverBudget> {
        self.items.take(items, "items")
    }

    /// Charges the product of several counts, however large.
    ///
    /// # Errors
    /// Fewer items are left.
    pub fn take_product(&mut self, counts: &[u64]) -> Result<(), OverBudget> {
        self.take_items(counts.iter().fold(1, |product: u64, count| product.saturating_mul(*count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_add_up_to_the_limit_and_not_beyond() {
        let mut budget = Budget::new(10, 3);
        budget.take_items(1).unwrap();
        budget.take_items(2).unwrap();
        assert_eq!(budget.take_items(1), Err(OverBudget { limit: 3, unit: "items" }));
        budget.take_bytes(10).unwrap();
        assert_eq!(budget.bytes_left(), 0);
        assert_eq!(budget.take_bytes(1).unwrap_err().to_string(), "more than 10 bytes in all");
    }

    #[test]
    fn a_refused_amount_leaves_nothing() {
        let mut budget = Budget::new(0, 3);
        assert!(budget.take_items(4).is_err());
        assert!(budget.take_items(1).is_err());
    }

    #[test]
    fn a_product_beyond_all_numbers_is_refused() {
        let mut budget = Budget::new(0, u64::MAX - 1);
        assert!(budget.take_product(&[u64::MAX, u64::MAX, 2]).is_err());
        let mut budget = Budget::new(0, 6);
        budget.take_product(&[2, 3]).unwrap();
        budget.take_product(&[0, u64::MAX]).unwrap();
        assert!(budget.take_items(1).is_err());
    }
}
