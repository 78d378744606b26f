// alpha/float32: alpha in float32, four elements at a time, from a multiple of four on.
// Needs: alpha.

alias AlphaStored = vec4f;

fn alpha_at(column: u32) -> vec4f {
  return alpha[column / 4u];
}
