// yardstick/layer_norm_back: the seed's algorithm, as it stands there.
//
//   dx = r * (u - mean(u) - xhat * mean(u * xhat))     xhat = (x - mean) * r, u = dy * alpha; (mean, r) into stats
//
// A workgroup of 256 threads takes a row: scalar loads, four trees over shared memory, x read four times. 7 passes.
// Measured by `rowgrad bench`, used by nothing else. Parts: total, words or halves, lib/storage.

struct Meta {
  d: u32,
}

@group(0) @binding(0) var<storage, read> x: array<Word>;
@group(0) @binding(1) var<storage, read> dy: array<Word>;
@group(0) @binding(2) var<storage, read> alpha: array<Word>;
@group(0) @binding(3) var<storage, read> eps: array<f32>;
@group(0) @binding(4) var<storage, read_write> dx: array<Word>;
@group(0) @binding(5) var<storage, read_write> stats: array<f32>;
@group(0) @binding(6) var<uniform> sizes: Meta;

fn gradient(base: u32, j: u32, mean: f32, r: f32, u_mean: f32, ux_mean: f32) -> f32 {
  let i = base + j;
  let xhat = (element(x[slot(i)], i) - mean) * r;
  let u = element(dy[slot(i)], i) * element(alpha[slot(j)], j);
  return r * (u - u_mean - xhat * ux_mean);
}

@compute @workgroup_size(NT)
fn layer_norm_back(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) t: u32) {
  let d = sizes.d;
  let row = group.x;
  let base = row * d;
  let n = f32(d);

  var sum = 0.0;
  for (var i = t; i < d; i += NT) {
    sum += element(x[slot(base + i)], base + i);
  }
  let mean = total(sum, t) / n;

  var squares = 0.0;
  for (var i = t; i < d; i += NT) {
    let centred = element(x[slot(base + i)], base + i) - mean;
    squares += centred * centred;
  }
  let r = 1.0 / sqrt(total(squares, t) / n + eps[0]);

  var u_sum = 0.0;
  var ux_sum = 0.0;
  for (var i = t; i < d; i += NT) {
    let xhat = (element(x[slot(base + i)], base + i) - mean) * r;
    let u = element(dy[slot(base + i)], base + i) * element(alpha[slot(i)], i);
    u_sum += u;
    ux_sum += u * xhat;
  }
  let u_mean = total(u_sum, t) / n;
  let ux_mean = total(ux_sum, t) / n;

  for (var o = PACKED * t; o < d; o += PACKED * NT) {
    let even = gradient(base, o, mean, r, u_mean, ux_mean);
    var odd = 0.0;
    if (PACKED == 2u) {
      odd = gradient(base, o + 1u, mean, r, u_mean, ux_mean);
    }
    dx[slot(base + o)] = packed(even, odd);
  }
  if (t == 0u) {
    stats[2u * row] = mean;
    stats[2u * row + 1u] = r;
  }
}
