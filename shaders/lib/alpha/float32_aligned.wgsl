// alpha/float32_aligned: alpha in float32, four elements at a time.
// Needs: alpha.

alias AlphaStored = vec4f;

fn alpha_quad(column: u32) -> vec4f {
  return alpha[column / 4u];
}
