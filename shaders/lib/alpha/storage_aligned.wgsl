// alpha/storage_aligned: alpha in the storage type of x, a cell at a time.
// Needs: alpha; lib/storage.

alias AlphaStored = Cell;

fn alpha_quad(column: u32) -> vec4f {
  return widen(alpha[column / 4u]);
}
