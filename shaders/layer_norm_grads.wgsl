// layer_norm_grads: layer_norm_back and layer_norm_params in one read of x and dy.
//
//   dx[r, j] = r * (u - mean(u) - xhat * mean(u * xhat)),  xhat = (x - mean) * r,  u = dy * alpha
//   partial[c, 0, j] = sum_r dy[r, j] * xhat[r, j]     over the rows r of chunk c, by turns
//   partial[c, 1, j] = sum_r dy[r, j]
//
//   binding  name     shape           type            access
//   0        x        [rows, d]       F               read
//   1        dy       [rows, d]       F               read
//   2        alpha    [d]             F or f32        read
//   3        eps      [1]             f32             read
//   4        dx       [rows, d]       F               write
//   5        stats    [rows, 2]       f32: (mean, r)  write
//   6        partial  [chunks, 2, d]  f32             read and write ("partial" is reserved in WGSL: partial_)
//   7        sizes    Meta            u32 fields      uniform
//
// A workgroup takes a chunk. Its TEAMS teams walk the rows by turns; a thread keeps the sums of its columns in registers
// all the way, and in the end the teams' sums are added in order. 3 passes over rows x d.
// The same arithmetic in the same order as layer_norm_back and layer_norm_params. For rows that a thread can keep beside
// its sums. Where 16-bit rows share words and a chunk ends inside one, that chunk's workgroup writes all of the word, so
// it computes the next chunk's first row too: its dx, not its sums. Teams do not go by turns there.
// Twin: layer_norm_grads.cu. Oracle: reference.layer_norm_back, reference.layer_norm_params.
// Parts: lib/row, lib/quads, lib/team, lib/statistics, lib/gradient, lib/sums, lib/partial, lib/turns, lib/read,
// lib/storage, lib/alpha, lib/store.

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
@group(0) @binding(2) var<storage, read> alpha: array<AlphaStored>;
@group(0) @binding(3) var<storage, read> eps: array<f32>;
@group(0) @binding(4) var<storage, read_write> dx: array<Stored>;
@group(0) @binding(5) var<storage, read_write> stats: array<f32>;
@group(0) @binding(6) var<storage, read_write> partial_: array<Sums>;
@group(0) @binding(7) var<uniform> sizes: Meta;

// `row`, or the row behind it where that ends the word that the two share.
fn whole_words(row: u32) -> u32 {
  if (ROWS_IN_TURN > 1u) {
    return row + row % 2u;
  }
  return row;
}

// A row of the chunk, or the one behind its last. The first may end a word that the chunk before writes.
fn chunk_row(row: Row, is_first: bool, thread: u32) {
  let statistics = statistics_of(row, thread);
  let means = gradient_means(row, statistics, thread);
  var written = row;
  if (ROWS_IN_TURN > 1u && row.shift == 1u && is_first) {
    written.quads = 0u;
  }
  write_gradient(written, statistics, means, thread);
  write_statistics(statistics, written, thread % TEAM);
}

@compute @workgroup_size(THREADS)
fn layer_norm_grads(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) thread: u32,
) {
  let chunk = group.x + group.y * groups.x;
  if (chunk < sizes.chunk_count) {
    let start = (sizes.first_chunk + chunk) * sizes.per;
    let begin = max(start, sizes.first_row);
    let end = min(start + sizes.per, sizes.first_row + sizes.row_count);
    let slot = sums_slot(chunk);
    begin_sums(slot, start < begin, end - sizes.first_row, thread);
    for (var first = begin; first < whole_words(end); first += TEAMS) {
      let row = first + thread / TEAM;
      let there = row < whole_words(end);
      chunk_row(row_at(select(sizes.row_count, row - sizes.first_row, there)), first == begin, thread);
    }
    write_sums(slot, thread);
  }
}
