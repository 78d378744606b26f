// layer_norm_params: a LayerNorm's parameter gradients as one partial row per chunk of rows.
//
//   partial[c, 0, j] = sum_r dy[r, j] * (x[r, j] - mean[r]) * r[r]     over the rows r of chunk c, by turns
//   partial[c, 1, j] = sum_r dy[r, j]
//
//   binding  name     shape           type            access
//   0        x        [rows, d]       F               read
//   1        dy       [rows, d]       F               read
//   2        stats    [rows, 2]       f32: (mean, r)  read
//   3        partial  [chunks, 2, d]  f32             read and write ("partial" is reserved in WGSL: partial_)
//   4        sizes    Meta            u32 fields      uniform
//
// Chunk c holds rows c*per to min((c+1)*per, rows). The bindings may hold only a window of the rows, from first_row;
// a chunk that began before the window goes on from the sum it left in partial, so windows never change the bits.
// A thread takes four neighbouring columns of one chunk; the TEAMS teams of a workgroup walk the rows by
// turns, and their sums are added in order: 2 passes over rows x d.
// Twin: layer_norm_params.cu. Oracle: reference.layer_norm_params. Parts: lib/partial, lib/turns, lib/read, lib/storage.

struct Meta {
  rows: u32,
  d: u32,
  per: u32,
  first_row: u32,
  row_count: u32,
  first_chunk: u32,
  chunk_count: u32,
  origin: u32,
  stats_origin: u32,
  partial_origin: u32,
}

@group(0) @binding(0) var<storage, read> x: array<Stored>;
@group(0) @binding(1) var<storage, read> dy: array<Stored>;
@group(0) @binding(2) var<storage, read> stats: array<f32>;
@group(0) @binding(3) var<storage, read_write> partial_: array<Sums>;
@group(0) @binding(4) var<uniform> sizes: Meta;

@compute @workgroup_size(THREADS)
fn layer_norm_params(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) thread: u32,
) {
  let unit = (group.x + group.y * groups.x) * TEAM + thread % TEAM;
  let team = thread / TEAM;
  let width = (sizes.d + 3u) / 4u;
  let chunk = unit / width;
  let j = 4u * (unit % width);
  let start = (sizes.first_chunk + chunk) * sizes.per;
  let begin = max(start, sizes.first_row);
  let end = min(start + sizes.per, sizes.first_row + sizes.row_count);
  let alpha_slot = sizes.partial_origin + chunk * 2u * sizes.d + j;
  let beta_slot = alpha_slot + sizes.d;

  var dalpha = vec4f();
  var dbeta = vec4f();
  if (chunk < sizes.chunk_count) {
    if (start < begin && team == 0u) {
      dalpha = read_sums(alpha_slot);
      dbeta = read_sums(beta_slot);
    }
    for (var row = begin + team; row < end; row += TEAMS) {
      let index = row - sizes.first_row;
      let i = sizes.origin + index * sizes.d + j;
      let mean = stats[sizes.stats_origin + 2u * index];
      let r = stats[sizes.stats_origin + 2u * index + 1u];
      let g = dy_at(i);
      dalpha += g * ((x_at(i) - mean) * r);
      dbeta += g;
    }
  }
  dalpha = turn_sum(dalpha, thread);
  dbeta = turn_sum(dbeta, thread);
  if (chunk < sizes.chunk_count && team == 0u) {
    put_sums(alpha_slot, j, dalpha);
    put_sums(beta_slot, j, dbeta);
  }
}
