// columns/aligned: a thread takes four neighbouring columns, a cell of each row.
// Needs: lib/storage.

alias Stored = Cell;
alias Columns = vec4f;
const WIDTH = 4u;

fn slot(element: u32) -> u32 {
  return element / 4u;
}

fn columns(stored: Stored, element: u32) -> Columns {
  return widen(stored);
}
