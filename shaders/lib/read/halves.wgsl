// read/halves: four neighbouring 16-bit elements of SOURCE, which stands for each input of rows, from anywhere on.
// Needs: SOURCE; lib/storage (16 bit).

fn SOURCE_at(element: u32) -> vec4f {
  let word = element / 2u;
  let even = Cell(SOURCE[word], SOURCE[word + 1u]);
  let odd = Cell((even.x >> 16u) | (even.y << 16u), (even.y >> 16u) | (SOURCE[word + 2u] << 16u));
  return widen(select(odd, even, element % 2u == 0u));
}
