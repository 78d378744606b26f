// read/pairs: four neighbouring 16-bit elements of SOURCE, which stands for each input of rows, from a word on.
// Needs: SOURCE; lib/storage (16 bit).

fn SOURCE_at(element: u32) -> vec4f {
  let word = element / 2u;
  return widen(Cell(SOURCE[word], SOURCE[word + 1u]));
}
