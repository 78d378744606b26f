// columns/halves: a thread takes one 16-bit column, the half of a word.
// Needs: lib/storage (16 bit).

alias Stored = Word;
alias Columns = f32;
const WIDTH = 1u;

fn slot(element: u32) -> u32 {
  return element / 2u;
}

fn columns(stored: Stored, element: u32) -> Columns {
  return widen(Cell(stored >> (16u * (element % 2u)), 0u)).x;
}
