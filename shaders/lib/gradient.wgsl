// gradient: one row of a LayerNorm's dx, and its (mean, r); an RMSNorm's is the same with both means held at 0.
//
// `gather`, of lib/sums or lib/dx_only, is told every quad of dy and of xhat = (x - mean) * r on the way: the one-pass
// kernel sums its columns there. `alpha_here`, of the same, is quad `q` of alpha, the thread's k-th.
// Needs: lib/row, lib/quads, lib/team, lib/statistics, lib/store; lib/sums or lib/dx_only; KEPT_BESIDE, BOTH.

var<private> u_kept: array<vec4f, KEPT_BESIDE>;

// Quad `q` of u = dy * alpha, whose dy is at hand.
fn u_quad(row: Row, k: u32, q: u32, dy_at_hand: vec4f) -> vec4f {
  var quad = vec4f();
  if (readable(row, q)) {
    quad = inside(row, q, dy_at_hand * alpha_here(row, k, q));
  }
  return quad;
}

fn layer_norm_row(row: Row, thread: u32) {
  gradient_row(row, statistics_of(row, thread), true, thread);
}

// The row's dx by its statistics; the mean of u is taken off where the layer is `centred`.
fn gradient_row(row: Row, statistics: Statistics, centred: bool, thread: u32) {
  var means = gradient_means(row, statistics, thread);
  if (!centred) {
    means.x = 0.0;
  }
  write_gradient(row, statistics, means, thread);
  write_statistics(statistics, row, thread % TEAM);
}

// The means of u and of u * xhat.
fn gradient_means(row: Row, statistics: Statistics, thread: u32) -> vec4f {
  let sums = team_sum(gradient_share(row, statistics, thread % TEAM), thread);
  return sums / f32(sizes.d);
}

// A lane's share of the sums of u and of u * xhat.
fn gradient_share(row: Row, statistics: Statistics, lane: u32) -> vec4f {
  let steps = steps_of(row);
  let mean = statistics.near + statistics.rest;
  var u_sum = vec4f();
  var ux_sum = vec4f();
  for (var k = 0u; k < steps; k++) {
    let q = k * TEAM + lane;
    let g = dy_quad(row, q);
    let u = u_quad(row, k, q, g);
    let x_here = x_again(row, k, q);
    let xhat = xhat_quad(statistics, row, q, x_here);
    if (BOTH) {
      u_kept[k] = u;
      x_kept[k] = xhat;
    }
    u_sum += u;
    ux_sum += u * xhat;
    gather(row, k, q, g, (x_here - mean) * statistics.r, statistics);
  }
  return vec4f(across(u_sum), across(ux_sum), 0.0, 0.0);
}

// Writes a lane's quads of dx; `means` are those of u and of u * xhat.
fn write_gradient(row: Row, statistics: Statistics, means: vec4f, thread: u32) {
  let lane = thread % TEAM;
  let steps = steps_of(row);
  for (var k = 0u; k < steps; k++) {
    let q = k * TEAM + lane;
    var u: vec4f;
    var xhat: vec4f;
    if (BOTH) {
      u = u_kept[k];
      xhat = x_kept[k];
    } else {
      u = u_quad(row, k, q, dy_quad(row, q));
      xhat = xhat_quad(statistics, row, q, x_again(row, k, q));
    }
    if (q < row.quads) {
      store(row, q, statistics.r * (u - means.x - xhat * means.y));
    }
  }
  end_store(row, thread);
}
