// yardstick/words: float32 elements, one at a time.
// Needs: lib/storage.

const PACKED = 1u;

fn slot(i: u32) -> u32 {
  return i;
}

fn element(word: Word, i: u32) -> f32 {
  return word;
}

fn packed(even: f32, odd: f32) -> Word {
  return even;
}
