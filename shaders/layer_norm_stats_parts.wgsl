// layer_norm_stats_parts: layer_norm_stats for few long rows, each cut into parts, so that they use the whole device.
//
//   mean = sum_j x[r, j] / d,  r = (var + eps)^-1/2
//
//   binding  name   shape                type            access
//   0        x      [rows, d]            F               read
//   1        eps    [1]                  f32             read
//   2        stats  [rows, 2]            f32: (mean, r)  write
//   3        sums   [rows, parts, 2, 4]  f32             read and write
//   4        sizes  Meta                 u32 fields      uniform
//
// The same statistics, in the same order, as layer_norm_back_parts': phases 0 and 1 are its own, phase 2 writes.
// 2 passes over rows x d. For any d >= 1 but odd ones in 16 bits, which that kernel does not take; any number of parts.
// Twin: layer_norm_stats_parts.cu. Oracle: reference.layer_norm_stats.
// Parts: lib/row, lib/quads, lib/part, lib/team, lib/statistics, lib/part_statistics, lib/read, lib/storage.

struct Meta {
  d: u32,
  part: u32,
  parts: u32,
  phase: u32,
  row_count: u32,
  origin: u32,
  stats_origin: u32,
  sums_origin: u32,
}

@group(0) @binding(0) var<storage, read> x: array<Stored>;
@group(0) @binding(1) var<storage, read> eps: array<f32>;
@group(0) @binding(2) var<storage, read_write> stats: array<f32>;
@group(0) @binding(3) var<storage, read_write> sums: array<vec4f>;
@group(0) @binding(4) var<uniform> sizes: Meta;

@compute @workgroup_size(THREADS)
fn layer_norm_stats_parts(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) thread: u32,
) {
  let unit = group.x + group.y * groups.x;
  let part = part_at(unit);
  if (sizes.phase < STATISTICS_PHASES) {
    sum_for_statistics(part, unit, thread);
  } else {
    write_part_statistics(statistics_of_parts(part, thread), part, unit, thread);
  }
}
