// alpha/storage_shifted: alpha in the 16-bit type of x, for quads that begin at any column.
// Columns outside [0, d) give anything: `inside` drops them.
// Needs: alpha; lib/storage (16 bit).

alias AlphaStored = Word;

fn alpha_quad(column: u32) -> vec4f {
  var halves: vec4u;
  for (var k = 0u; k < 4u; k++) {
    halves[k] = (alpha[(column + k) / 2u] >> (16u * ((column + k) % 2u))) & 0xffffu;
  }
  return widen(halves.xz | (halves.yw << vec2u(16u)));
}
