// store/words: writes dx of float32 rows that begin anywhere, element by element.
// Needs: dx; lib/row.

fn store(row: Row, q: u32, quad: vec4f) {
  for (var k = 0u; k < 4u; k++) {
    if (column_of(row, q) + k < row.length) {
      dx[element_of(row, q) + k] = quad[k];
    }
  }
}

fn end_store(row: Row, thread: u32) {
}
