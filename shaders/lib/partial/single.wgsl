// partial/single: four neighbouring column sums of a chunk, from anywhere on; those behind the last column hold anything.
// Needs: partial_, sizes.d.

alias Sums = f32;

fn read_sums(slot: u32) -> vec4f {
  return vec4f(partial_[slot], partial_[slot + 1u], partial_[slot + 2u], partial_[slot + 3u]);
}

fn put_sums(slot: u32, column: u32, sums: vec4f) {
  for (var k = 0u; k < 4u; k++) {
    if (column + k < sizes.d) {
      partial_[slot + k] = sums[k];
    }
  }
}
