// alpha/storage: alpha in the storage type of x, four elements at a time, from a multiple of four on.
// Needs: alpha; lib/storage.

alias AlphaStored = Cell;

fn alpha_at(column: u32) -> vec4f {
  return widen(alpha[column / 4u]);
}
