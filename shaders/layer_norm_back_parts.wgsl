// layer_norm_back_parts: layer_norm_back for few long rows, each cut into parts, so that they use the whole device.
//
//   xhat = (x - mean) * r,  r = (var + eps)^-1/2,  u = dy * alpha
//   dx[r, j] = r * (u - mean(u) - xhat * mean(u * xhat))
//
//   binding  name   shape                type            access
//   0        x      [rows, d]            F               read
//   1        dy     [rows, d]            F               read
//   2        alpha  [d]                  F or f32        read
//   3        eps    [1]                  f32             read
//   4        dx     [rows, d]            F               write
//   5        stats  [rows, 2]            f32: (mean, r)  write
//   6        sums   [rows, parts, 3, 4]  f32             read and write
//   7        sizes  Meta                 u32 fields      uniform
//
// A workgroup takes a part of a row. Phases 0 and 1 sum for the statistics (lib/part_statistics), phase 2 sums u and
// u * xhat, phase 3 writes dx: 7 passes over rows x d, as many as layer_norm_back's where it keeps nothing.
// For any d >= 1 but odd ones in 16 bits, whose rows share words; any number of parts.
// Twin: layer_norm_back_parts.cu. Oracle: reference.layer_norm_back.
// Parts: lib/row, lib/quads, lib/part, lib/team, lib/statistics, lib/part_statistics, lib/gradient, lib/dx_only,
// lib/read, lib/storage, lib/alpha, lib/store.

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
@group(0) @binding(1) var<storage, read> dy: array<Stored>;
@group(0) @binding(2) var<storage, read> alpha: array<AlphaStored>;
@group(0) @binding(3) var<storage, read> eps: array<f32>;
@group(0) @binding(4) var<storage, read_write> dx: array<Stored>;
@group(0) @binding(5) var<storage, read_write> stats: array<f32>;
@group(0) @binding(6) var<storage, read_write> sums: array<vec4f>;
@group(0) @binding(7) var<uniform> sizes: Meta;

fn part_gradient(part: Row, unit: u32, thread: u32) {
  let statistics = statistics_of_parts(part, thread);
  if (sizes.phase == STATISTICS_PHASES) {
    sum_part(part, unit, gradient_share(part, statistics, thread), thread);
  } else {
    let means = sum_of_parts(part, STATISTICS_PHASES, thread) / f32(sizes.d);
    write_gradient(part, statistics, means, thread);
    write_part_statistics(statistics, part, unit, thread);
  }
}

@compute @workgroup_size(THREADS)
fn layer_norm_back_parts(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) thread: u32,
) {
  let unit = group.x + group.y * groups.x;
  let part = part_at(unit);
  if (sizes.phase < STATISTICS_PHASES) {
    sum_for_statistics(part, unit, thread);
  } else {
    part_gradient(part, unit, thread);
  }
}
