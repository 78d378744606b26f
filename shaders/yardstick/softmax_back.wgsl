// yardstick/softmax_back: the seed's algorithm, as it stands there.
//
//   dx[r, j] = y[r, j] * (dy[r, j] - sum_k dy[r, k] * y[r, k])
//
// A workgroup of 256 threads takes a row: scalar loads, a tree over shared memory, the row read again. 5 passes.
// Measured by `rowgrad bench`, used by nothing else. Parts: total, words or halves, lib/storage.

struct Meta {
  d: u32,
}

@group(0) @binding(0) var<storage, read> y: array<Word>;
@group(0) @binding(1) var<storage, read> dy: array<Word>;
@group(0) @binding(2) var<storage, read_write> dx: array<Word>;
@group(0) @binding(3) var<uniform> sizes: Meta;

fn gradient(i: u32, inner: f32) -> f32 {
  return element(y[slot(i)], i) * (element(dy[slot(i)], i) - inner);
}

@compute @workgroup_size(NT)
fn softmax_back(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) t: u32) {
  let d = sizes.d;
  let base = group.x * d;
  var products = 0.0;
  for (var i = t; i < d; i += NT) {
    products += element(dy[slot(base + i)], base + i) * element(y[slot(base + i)], base + i);
  }
  let inner = total(products, t);
  for (var o = PACKED * t; o < d; o += PACKED * NT) {
    let even = gradient(base + o, inner);
    var odd = 0.0;
    if (PACKED == 2u) {
      odd = gradient(base + o + 1u, inner);
    }
    dx[slot(base + o)] = packed(even, odd);
  }
}
