// store/aligned: writes dx where a row is whole cells.
// Needs: dx; lib/row, lib/storage.

alias Stored = Cell;

fn store(row: Row, q: u32, quad: vec4f, thread: u32) {
  dx[row.cell + q] = narrow(quad);
}
