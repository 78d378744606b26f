// yardstick/sum_partials: what the seed's host does with the partials, on the device.
//
//   dalpha[j] = sum_c partial[c, 0, j]     over the chunks c, ascending, from 0
//   dbeta[j]  = sum_c partial[c, 1, j]
//
// A thread takes a column. Measured by `rowgrad bench`, used by nothing else.

struct Meta {
  chunks: u32,
  d: u32,
}

@group(0) @binding(0) var<storage, read> partial_: array<f32>;
@group(0) @binding(1) var<storage, read_write> dalpha: array<f32>;
@group(0) @binding(2) var<storage, read_write> dbeta: array<f32>;
@group(0) @binding(3) var<uniform> sizes: Meta;

@compute @workgroup_size(NT)
fn sum_partials(@builtin(global_invocation_id) unit: vec3u) {
  let d = sizes.d;
  let j = unit.x;
  if (j < d) {
    var alpha_sum = 0.0;
    var beta_sum = 0.0;
    for (var c = 0u; c < sizes.chunks; c++) {
      alpha_sum += partial_[c * 2u * d + j];
      beta_sum += partial_[c * 2u * d + d + j];
    }
    dalpha[j] = alpha_sum;
    dbeta[j] = beta_sum;
  }
}
