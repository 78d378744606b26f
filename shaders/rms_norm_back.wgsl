// rms_norm_back: gradient of an RMSNorm by its input, row by row, and each row's r as (0, r).
//
//   xhat = x * r,  r = (mean(x^2) + eps)^-1/2,  u = dy * alpha
//   dx[r, j] = r * (u - xhat * mean(u * xhat))
//
//   binding  name   shape      type         access
//   0        x      [rows, d]  F            read
//   1        dy     [rows, d]  F            read
//   2        alpha  [d]        F or f32     read
//   3        eps    [1]        f32          read
//   4        dx     [rows, d]  F            write
//   5        stats  [rows, 2]  f32: (0, r)  write
//   6        sizes  Meta       u32 fields   uniform
//
// RMSNorm (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019) is a LayerNorm whose mean is held at 0. So
// its stats are that one's with a mean of 0, and layer_norm_params makes the scale's partial sums of them.
// A team of TEAM threads takes a row. Where the squares overflow float32 lib/statistics.wgsl takes those of the scaled
// row. While a row fits (BOTH) each element is read once: 3 passes over rows x d. Where only x is kept 4, else a row is
// read again for every sum: 6 passes. Right for any d >= 1, any rows and any number of workgroups.
// Twin: rms_norm_back.cu. Oracle: reference.rms_norm_back.
// Parts: lib/row, lib/quads, lib/team, lib/statistics, lib/gradient, lib/dx_only, lib/read, lib/storage, lib/alpha,
// lib/store.

struct Meta {
  d: u32,
  row_count: u32,
  origin: u32,
  stats_origin: u32,
}

@group(0) @binding(0) var<storage, read> x: array<Stored>;
@group(0) @binding(1) var<storage, read> dy: array<Stored>;
@group(0) @binding(2) var<storage, read> alpha: array<AlphaStored>;
@group(0) @binding(3) var<storage, read> eps: array<f32>;
@group(0) @binding(4) var<storage, read_write> dx: array<Stored>;
@group(0) @binding(5) var<storage, read_write> stats: array<f32>;
@group(0) @binding(6) var<uniform> sizes: Meta;

// The statistics of a row that is not centred: its r. Keeps x.
fn root_of(row: Row, thread: u32) -> Statistics {
  let lane = thread % TEAM;
  let steps = steps_of(row);
  var squares = vec4f();
  var small_squares = vec4f();
  for (var k = 0u; k < steps; k++) {
    let quad = x_quad(row, k * TEAM + lane);
    if (QUADS > 0u) {
      x_kept[k] = quad;
    }
    let small = quad * SMALL;
    squares += quad * quad;
    small_squares += small * small;
  }
  let means = team_sum(vec4f(across(squares), across(small_squares), 0.0, 0.0), thread) / f32(sizes.d);
  return Statistics(0.0, 0.0, inverse_deviation(0.0, means.x, means.y));
}

@compute @workgroup_size(THREADS)
fn rms_norm_back(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) thread: u32,
) {
  let first = first_row(group, groups, thread);
  for (var k = 0u; k < ROWS_IN_TURN; k++) {
    let row = row_at(first + k);
    gradient_row(row, root_of(row, thread), false, thread);
  }
}
