// partial/quads: four neighbouring column sums of a chunk, where d is a multiple of four.
// Needs: partial_.

alias Sums = vec4f;

fn read_sums(slot: u32) -> vec4f {
  return partial_[slot / 4u];
}

fn put_sums(slot: u32, column: u32, sums: vec4f) {
  partial_[slot / 4u] = sums;
}
