// store/words: writes dx of float32 rows that share their outer cells with their neighbours, element by element.
// Needs: dx; lib/row, lib/storage.

alias Stored = Word;

fn store(row: Row, q: u32, quad: vec4f, thread: u32) {
  let cell = narrow(quad);
  for (var k = 0u; k < 4u; k++) {
    if (column_of(row, q) + k < row.length) {
      dx[4u * (row.cell + q) + k] = cell[k];
    }
  }
}
