// columns/words: a thread takes one float32 column.
// Needs: lib/storage.

alias Stored = Word;
alias Columns = f32;
const WIDTH = 1u;

fn slot(element: u32) -> u32 {
  return element;
}

fn columns(stored: Stored, element: u32) -> Columns {
  return stored;
}
