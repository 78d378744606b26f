// read/words: four neighbouring float32 elements of SOURCE, which stands for each input of rows, from anywhere on.
// Needs: SOURCE.

fn SOURCE_at(element: u32) -> vec4f {
  return vec4f(SOURCE[element], SOURCE[element + 1u], SOURCE[element + 2u], SOURCE[element + 3u]);
}
