// yardstick/halves: 16-bit elements, read one at a time out of their words and written by words.
// Needs: lib/storage (16 bit).

const PACKED = 2u;

fn slot(i: u32) -> u32 {
  return i / 2u;
}

fn element(word: Word, i: u32) -> f32 {
  return widen(Cell(word >> (16u * (i % 2u)), 0u)).x;
}

fn packed(even: f32, odd: f32) -> Word {
  return narrow(vec4f(even, odd, 0.0, 0.0)).x;
}
