// store/cells: writes dx where rows are whole cells.
// Needs: dx; lib/row, lib/storage.

fn store(row: Row, q: u32, quad: vec4f) {
  dx[element_of(row, q) / 4u] = narrow(quad);
}

fn end_store(row: Row, thread: u32) {
}
