// statistics: a row's mean and r = (var + eps)^-1/2.
//
// The corrected two-pass algorithm (Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983):
// what the first mean missed, `rest`, is the mean of the centred row, and is taken off the variance and off x again.
// A constant row comes out as exactly centred, and a mean far above the spread costs no digits.
// Where the squares overflow float32 (|x| above 1e18) the sum of squares of the scaled row takes their place, as it
// does where eps is as large as that.
// Needs: x, eps, stats, sizes.d, sizes.stats_origin; lib/row, lib/quads, lib/team.

const SMALL = 0x1p-80f;       // scales a row whose squares overflow so that they neither overflow nor vanish
const OVERFLOWING = 0x1p120f; // from here on a mean square may have lost terms to overflow

struct Statistics {
  near: f32,  // the first mean
  rest: f32,  // what it missed
  r: f32,
}

var<private> x_kept: array<vec4f, KEPT>;

fn statistics_of(row: Row, thread: u32) -> Statistics {
  let lane = thread % TEAM;
  let near = team_sum(sum_share(row, lane), thread).x / f32(sizes.d);
  let means = team_sum(missed_share(row, lane, near), thread) / f32(sizes.d);
  return Statistics(near, means.x, inverse_deviation(means.x, means.y, means.z));
}

// A lane's share of the sum of x.
fn sum_share(row: Row, lane: u32) -> vec4f {
  let steps = steps_of(row);
  var sum = vec4f();
  for (var k = 0u; k < steps; k++) {
    let quad = x_quad(row, k * TEAM + lane);
    if (QUADS > 0u) {
      x_kept[k] = quad;
    }
    sum += quad;
  }
  return vec4f(across(sum), 0.0, 0.0, 0.0);
}

// A lane's share of the sums of what the first mean missed, of its squares, and of the squares scaled.
fn missed_share(row: Row, lane: u32, near: f32) -> vec4f {
  let steps = steps_of(row);
  var rest = vec4f();
  var squares = vec4f();
  var small_squares = vec4f();
  for (var k = 0u; k < steps; k++) {
    let q = k * TEAM + lane;
    let centred = inside(row, q, x_again(row, k, q) - near);
    let small = centred * SMALL;
    rest += centred;
    squares += centred * centred;
    small_squares += small * small;
  }
  return vec4f(across(rest), across(squares), across(small_squares), 0.0);
}

fn inverse_deviation(rest: f32, square: f32, small_square: f32) -> f32 {
  if (square + eps[0] < OVERFLOWING) {
    return 1.0 / sqrt(at_least(0.0, square - rest * rest) + eps[0]);
  }
  let small_rest = rest * SMALL;
  let small_root = sqrt(eps[0]) * SMALL; // compilers multiply SMALL * SMALL first, which is 0
  return SMALL / sqrt(at_least(0x1p-100f, small_square - small_rest * small_rest) + small_root * small_root);
}

// `value`, or `least` if it is below; NaN stays NaN. Found by its bits: max() would lose it, and so would a comparison
// on OpenGL, where Mesa makes a max() of it.
fn at_least(least: f32, value: f32) -> f32 {
  let is_nan = (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u;
  return select(max(value, least), value, is_nan);
}

// Quad `q` of x again, the thread's k-th, which sum_share may have kept.
fn x_again(row: Row, k: u32, q: u32) -> vec4f {
  if (QUADS > 0u) {
    return x_kept[k];
  }
  return x_quad(row, q);
}

// Quad `q` of xhat, zero outside the row.
fn xhat_quad(statistics: Statistics, row: Row, q: u32, quad: vec4f) -> vec4f {
  return inside(row, q, (opaque(quad - statistics.near) - statistics.rest) * statistics.r);
}

// The same numbers, by way of a zero that compilers do not know: d is below 2^31. By fast mathematics, as
// is Metal's default, they may make (a - b) - c an a - (b + c), whose sum is rounded, and `rest` would be lost.
fn opaque(quad: vec4f) -> vec4f {
  return bitcast<vec4f>(bitcast<vec4u>(quad) | vec4u(sizes.d >> 31u));
}

fn write_statistics(statistics: Statistics, row: Row, lane: u32) {
  if (lane == 0u && row.quads > 0u) {
    stats[sizes.stats_origin + 2u * row.index] = statistics.near + statistics.rest;
    stats[sizes.stats_origin + 2u * row.index + 1u] = statistics.r;
  }
}
