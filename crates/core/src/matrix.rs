//! A square table by `[row][column]`; for traffic, latency and bandwidth the row is the accessing
//! node and the column the holding one.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// A square matrix in one allocation, row after row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Matrix<T> {
    size: usize,
    cells: Vec<T>,
}

impl<T: Copy> Matrix<T> {
    /// `size` × `size` cells of one value.
    #[must_use]
    pub fn filled(size: usize, value: T) -> Self {
        Self { size, cells: vec![value; size * size] }
    }

    /// From a function of `(row, column)`.
    #[must_use]
    pub fn from_fn(size: usize, cell: impl Fn(usize, usize) -> T) -> Self {
        let cells = (0..size * size).map(|i| cell(i / size, i % size)).collect();
        Self { size, cells }
    }

    /// From rows; `None` if they do not form a square.
    #[must_use]
    pub fn from_rows(rows: &[Vec<T>]) -> Option<Self> {
        let square = rows.iter().all(|row| row.len() == rows.len());
        square.then(|| Self { size: rows.len(), cells: rows.iter().flatten().copied().collect() })
    }

    /// Rows, which is also columns.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// One row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[T] {
        &self.cells[row * self.size..][..self.size]
    }

    /// The rows in order.
    pub fn rows(&self) -> impl Iterator<Item = &[T]> {
        (0..self.size).map(|row| self.row(row))
    }

    /// One column, top to bottom.
    pub fn column(&self, column: usize) -> impl Iterator<Item = T> + '_ {
        (0..self.size).map(move |row| self[(row, column)])
    }

    /// `(row, column, value)` of every cell, row after row.
    pub fn cells(&self) -> impl Iterator<Item = (usize, usize, T)> + '_ {
        self.cells.iter().enumerate().map(|(i, &value)| (i / self.size, i % self.size, value))
    }

    /// The matrix of `change(value)`.
    #[must_use]
    pub fn map<U>(&self, change: impl Fn(T) -> U) -> Matrix<U> {
        Matrix { size: self.size, cells: self.cells.iter().map(|&value| change(value)).collect() }
    }
}

impl<T> Index<(usize, usize)> for Matrix<T> {
    type Output = T;
    fn index(&self, (row, column): (usize, usize)) -> &T {
        assert!(
            row < self.size && column < self.size,
            "cell ({row}, {column}) of a {0}×{0} matrix",
            self.size
        );
        &self.cells[row * self.size + column]
    }
}

impl<T> IndexMut<(usize, usize)> for Matrix<T> {
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut T {
        assert!(
            row < self.size && column < self.size,
            "cell ({row}, {column}) of a {0}×{0} matrix",
            self.size
        );
        &mut self.cells[row * self.size + column]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_no_square_give_nothing() {
        assert_eq!(Matrix::from_rows(&[vec![1, 2], vec![3]]), None);
        assert!(Matrix::<u8>::from_rows(&[]).is_some_and(|empty| empty.size() == 0));
    }

    #[test]
    fn rows_and_columns_are_what_was_given() {
        let matrix = Matrix::from_rows(&[vec![1, 2], vec![3, 4]]).expect("square");
        assert_eq!(matrix.row(1), [3, 4]);
        assert_eq!(matrix.column(1).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(matrix.map(|x| x * 10)[(0, 1)], 20);
    }
}
