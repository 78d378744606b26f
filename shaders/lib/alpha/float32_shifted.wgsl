// alpha/float32_shifted: alpha in float32, for quads that begin at any column.
// Columns outside [0, d) give anything: `inside` drops them.
// Needs: alpha.

alias AlphaStored = f32;

fn alpha_quad(column: u32) -> vec4f {
  return vec4f(alpha[column], alpha[column + 1u], alpha[column + 2u], alpha[column + 3u]);
}
