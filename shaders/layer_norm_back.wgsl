// layer_norm_back: gradient of a LayerNorm by its input, row by row, and each row's (mean, r).
//
//   xhat = (x - mean) * r,  r = (var + eps)^-1/2,  u = dy * alpha
//   dx[r, j] = r * (u - mean(u) - xhat * mean(u * xhat))
//
//   binding  name   shape      type            access
//   0        x      [rows, d]  F               read
//   1        dy     [rows, d]  F               read
//   2        alpha  [d]        F or f32        read
//   3        eps    [1]        f32             read
//   4        dx     [rows, d]  F               write
//   5        stats  [rows, 2]  f32: (mean, r)  write
//   6        sizes  Meta       u32 fields      uniform
//
// A team of TEAM threads takes a row; the statistics are lib/statistics.wgsl's. While a row fits (BOTH) each element is
// read once: 3 passes over rows x d. Where only x is kept 4, else a row is read again for every sum: 7 passes.
// Right for any d >= 1, any rows and any number of workgroups.
// Twin: layer_norm_back.cu. Oracle: reference.layer_norm_back.
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

@compute @workgroup_size(THREADS)
fn layer_norm_back(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) thread: u32,
) {
  let first = first_row(group, groups, thread);
  for (var k = 0u; k < ROWS_IN_TURN; k++) {
    layer_norm_row(row_at(first + k), thread);
  }
}
