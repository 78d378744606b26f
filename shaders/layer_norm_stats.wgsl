// layer_norm_stats: each row's (mean, r) alone, for when its dx is not wanted.
//
//   mean = sum_j x[r, j] / d,  r = (var + eps)^-1/2
//
//   binding  name   shape      type            access
//   0        x      [rows, d]  F               read
//   1        eps    [1]        f32             read
//   2        stats  [rows, 2]  f32: (mean, r)  write
//   3        sizes  Meta       u32 fields      uniform
//
// The same statistics, in the same order, as layer_norm_back's: dalpha does not depend on what else was asked for.
// One pass over rows x d while a row fits, two for a longer one. Right for any d >= 1 and any rows.
// Twin: layer_norm_stats.cu. Oracle: reference.layer_norm_stats.
// Parts: lib/row, lib/quads, lib/team, lib/statistics, lib/read, lib/storage.

struct Meta {
  d: u32,
  row_count: u32,
  origin: u32,
  stats_origin: u32,
}

@group(0) @binding(0) var<storage, read> x: array<Stored>;
@group(0) @binding(1) var<storage, read> eps: array<f32>;
@group(0) @binding(2) var<storage, read_write> stats: array<f32>;
@group(0) @binding(3) var<uniform> sizes: Meta;

@compute @workgroup_size(THREADS)
fn layer_norm_stats(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) thread: u32,
) {
  let first = first_row(group, groups, thread);
  for (var k = 0u; k < ROWS_IN_TURN; k++) {
    let row = row_at(first + k);
    write_statistics(statistics_of(row, thread), row, thread % TEAM);
  }
}
