// columns/aligned: four neighbouring columns are a cell of each row.
// Needs: x, dy, partial_; lib/storage.

alias Stored = Cell;
alias Sums = vec4f;

fn x_columns(element: u32) -> vec4f {
  return widen(x[element / 4u]);
}

fn dy_columns(element: u32) -> vec4f {
  return widen(dy[element / 4u]);
}

fn read_sums(slot: u32) -> vec4f {
  return partial_[slot / 4u];
}

fn write_sums(slot: u32, column: u32, sums: vec4f) {
  partial_[slot / 4u] = sums;
}
