// read/cells: four neighbouring elements of SOURCE, which stands for each input of rows, where rows are whole cells.
// Needs: SOURCE; lib/storage.

fn SOURCE_at(element: u32) -> vec4f {
  return widen(SOURCE[element / 4u]);
}
