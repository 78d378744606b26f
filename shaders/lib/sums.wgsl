// sums: the column sums of a chunk, and its alpha, which stay with the threads that take the columns.
// Needs: partial_, sizes.d, sizes.partial_origin; lib/row (aligned), lib/alpha, lib/turns; TEAM, QUADS, KEPT.

var<private> dalpha_sum: array<vec4f, KEPT>;
var<private> dbeta_sum: array<vec4f, KEPT>;
var<private> alpha_kept: array<vec4f, KEPT>;

fn alpha_here(row: Row, k: u32, q: u32) -> vec4f {
  return alpha_kept[k];
}

// Where the chunk's dalpha begins; its dbeta follows.
fn sums_slot(chunk: u32) -> u32 {
  return (sizes.partial_origin + chunk * 2u * sizes.d) / 4u;
}

// Reads alpha; sets the sums to zeros, or to what is in partial where the chunk `goes_on`.
fn begin_sums(slot: u32, goes_on: bool, thread: u32) {
  let width = sizes.d / 4u;
  for (var k = 0u; k < QUADS; k++) {
    let q = k * TEAM + thread;
    let own = k * TEAM + thread % TEAM;
    if (own < width) {
      alpha_kept[k] = alpha_quad(4u * own);
    }
    dalpha_sum[k] = vec4f();
    dbeta_sum[k] = vec4f();
    if (goes_on && thread < TEAM && q < width) {
      dalpha_sum[k] = partial_[slot + q];
      dbeta_sum[k] = partial_[slot + width + q];
    }
  }
}

fn gather(k: u32, g: vec4f, xhat: vec4f) {
  dalpha_sum[k] += g * xhat;
  dbeta_sum[k] += g;
}

fn write_sums(slot: u32, thread: u32) {
  let width = sizes.d / 4u;
  for (var k = 0u; k < QUADS; k++) {
    let q = k * TEAM + thread;
    let dalpha = turn_sum(dalpha_sum[k], thread);
    let dbeta = turn_sum(dbeta_sum[k], thread);
    if (thread < TEAM && q < width) {
      partial_[slot + q] = dalpha;
      partial_[slot + width + q] = dbeta;
    }
  }
}
