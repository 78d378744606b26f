// sums: the column sums of a chunk, and its alpha, which stay with the threads that take the columns.
//
// A thread's sums are those of the quads that begin with a row. Where a row's quads begin one element early, what
// belongs to a quad's columns is its last three elements and the next quad's first.
// Needs: sizes.d, sizes.partial_origin; lib/row, lib/quads, lib/gradient, lib/alpha, lib/partial, lib/turns; TEAM, TEAMS,
// ROWS_IN_TURN, KEPT.

var<private> dalpha_sum: array<vec4f, KEPT>;
var<private> dbeta_sum: array<vec4f, KEPT>;
var<private> alpha_kept: array<vec4f, KEPT>;
var<private> alpha_before: array<f32, KEPT>;  // alpha of the column before the quad's
var<private> rows_end: u32;  // the row of the window with which the chunk, or the window, is over

fn alpha_here(row: Row, k: u32, q: u32) -> vec4f {
  return moved(row, alpha_before[k], alpha_kept[k]);
}

// Where the chunk's dalpha begins; its dbeta follows.
fn sums_slot(chunk: u32) -> u32 {
  return sizes.partial_origin + chunk * 2u * sizes.d;
}

// Reads alpha; sets the sums to zeros, or to what is in partial where the chunk `goes_on`.
fn begin_sums(slot: u32, goes_on: bool, end: u32, thread: u32) {
  rows_end = end;
  let steps = steps_over((sizes.d + 3u) / 4u);
  for (var k = 0u; k < steps; k++) {
    let column = 4u * (k * TEAM + thread % TEAM);
    if (column < sizes.d) {
      alpha_kept[k] = alpha_at(column);
    }
    if (ROWS_IN_TURN > 1u && column > 0u) {
      alpha_before[k] = alpha_at(column - 4u).w;
    }
    dalpha_sum[k] = vec4f();
    dbeta_sum[k] = vec4f();
    if (goes_on && thread < TEAM && column < sizes.d) {
      dalpha_sum[k] = read_sums(slot + column);
      dbeta_sum[k] = read_sums(slot + sizes.d + column);
    }
  }
}

// Adds what lib/gradient meets to the sums of the thread's k-th columns, if the row is the chunk's.
fn gather(row: Row, k: u32, q: u32, dy_here: vec4f, xhat: vec4f, statistics: Statistics) {
  if (ROWS_IN_TURN > 1u) {
    gather_shifted(row, k, q, dy_here, xhat, statistics);
  } else if (TEAMS == 1u || row.index < rows_end) {
    dalpha_sum[k] += dy_here * xhat;
    dbeta_sum[k] += dy_here;
  }
}

// What lies behind the row is not written. Without branches: llvmpipe would go both ways and keep nothing in registers.
fn gather_shifted(row: Row, k: u32, q: u32, dy_here: vec4f, xhat: vec4f, statistics: Statistics) {
  let next = element_of(row, q + 1u);
  let xhat_next = (x_at(next).x - (statistics.near + statistics.rest)) * statistics.r;
  let g = moved_back(row, dy_here, dy_at(next).x);
  let product = g * moved_back(row, xhat, xhat_next);
  let is_own = row.index < rows_end;
  dalpha_sum[k] += select(vec4f(), product, is_own);
  dbeta_sum[k] += select(vec4f(), g, is_own);
}

fn write_sums(slot: u32, thread: u32) {
  let steps = steps_over((sizes.d + 3u) / 4u);
  for (var k = 0u; k < steps; k++) {
    let column = 4u * (k * TEAM + thread % TEAM);
    let dalpha = turn_sum(dalpha_sum[k], thread);
    let dbeta = turn_sum(dbeta_sum[k], thread);
    if (thread < TEAM && column < sizes.d) {
      put_sums(slot + column, column, dalpha);
      put_sums(slot + sizes.d + column, column, dbeta);
    }
  }
}
