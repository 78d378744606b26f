// columns/words: four neighbouring float32 columns, which may begin anywhere. Those behind the last one hold anything.
// Needs: x, dy, partial_, sizes.d; lib/storage.

alias Stored = Word;
alias Sums = f32;

fn x_columns(element: u32) -> vec4f {
  return vec4f(x[element], x[element + 1u], x[element + 2u], x[element + 3u]);
}

fn dy_columns(element: u32) -> vec4f {
  return vec4f(dy[element], dy[element + 1u], dy[element + 2u], dy[element + 3u]);
}

fn read_sums(slot: u32) -> vec4f {
  return vec4f(partial_[slot], partial_[slot + 1u], partial_[slot + 2u], partial_[slot + 3u]);
}

fn write_sums(slot: u32, column: u32, sums: vec4f) {
  for (var k = 0u; k < 4u; k++) {
    if (column + k < sizes.d) {
      partial_[slot + k] = sums[k];
    }
  }
}
