// dx_only: what lib/gradient asks for where the parameters' gradients are not summed on the way.
// Needs: lib/row, lib/alpha; ROWS_IN_TURN.

// Quad `q` of alpha, as the row's quads lie.
fn alpha_here(row: Row, k: u32, q: u32) -> vec4f {
  let quad = alpha_at(row.first + 4u * q);
  if (ROWS_IN_TURN == 1u) {
    return quad;
  }
  return moved(row, alpha_at(4u * max(q, 1u) - 4u).w, quad);
}

// Gathers nothing.
fn gather(row: Row, k: u32, q: u32, dy_here: vec4f, xhat: vec4f, statistics: Statistics) {
}
