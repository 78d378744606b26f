// yardstick/layer_norm_params: the seed's algorithm, as it stands there.
//
//   partial[c, 0, j] = sum_r dy[r, j] * (x[r, j] - mean[r]) * r[r]     over the rows r of chunk c, ascending
//   partial[c, 1, j] = sum_r dy[r, j]
//
// A thread takes a column of a chunk, one scalar at a time. 2 passes.
// Measured by `rowgrad bench`, used by nothing else. Parts: total (NT alone), words or halves, lib/storage.

struct Meta {
  rows: u32,
  d: u32,
  per: u32,
}

@group(0) @binding(0) var<storage, read> x: array<Word>;
@group(0) @binding(1) var<storage, read> dy: array<Word>;
@group(0) @binding(2) var<storage, read> stats: array<f32>;
@group(0) @binding(3) var<storage, read_write> partial_: array<f32>;
@group(0) @binding(4) var<uniform> sizes: Meta;

@compute @workgroup_size(NT)
fn layer_norm_params(@builtin(global_invocation_id) unit: vec3u) {
  let d = sizes.d;
  let j = unit.x;
  let c = unit.y;
  if (j < d) {
    let end = min((c + 1u) * sizes.per, sizes.rows);
    var dalpha = 0.0;
    var dbeta = 0.0;
    for (var row = c * sizes.per; row < end; row++) {
      let i = row * d + j;
      let g = element(dy[slot(i)], i);
      dalpha += g * (element(x[slot(i)], i) - stats[2u * row]) * stats[2u * row + 1u];
      dbeta += g;
    }
    partial_[c * 2u * d + j] = dalpha;
    partial_[c * 2u * d + d + j] = dbeta;
  }
}
