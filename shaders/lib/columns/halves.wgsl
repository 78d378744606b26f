// columns/halves: four neighbouring 16-bit columns, which may begin anywhere. Those behind the last one hold anything.
// Needs: x, dy, partial_, sizes.d; lib/storage (16 bit).

alias Stored = Word;
alias Sums = f32;

fn x_columns(element: u32) -> vec4f {
  let word = element / 2u;
  return columns_of(x[word], x[word + 1u], x[word + 2u], element);
}

fn dy_columns(element: u32) -> vec4f {
  let word = element / 2u;
  return columns_of(dy[word], dy[word + 1u], dy[word + 2u], element);
}

// The columns from the low or, where `element` is odd, from the high half of the first word on.
fn columns_of(first: Word, second: Word, third: Word, element: u32) -> vec4f {
  let even = Cell(first, second);
  let odd = Cell((first >> 16u) | (second << 16u), (second >> 16u) | (third << 16u));
  return widen(select(odd, even, element % 2u == 0u));
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
