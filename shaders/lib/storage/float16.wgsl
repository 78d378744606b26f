// storage/float16: two elements in a word, the even one in its low half; a cell is four elements in two words.
//
// By integers, so that no adapter needs shader-f16 and every one rounds to nearest even, overflows to Inf (from 65520)
// and keeps NaN and subnormals: pack2x16float is undefined above 65504 and may flush.

alias Cell = vec2u;
alias Word = u32;

fn widen(cell: Cell) -> vec4f {
  let halves = vec4u(cell.x & 0xffffu, cell.x >> 16u, cell.y & 0xffffu, cell.y >> 16u);
  let sign = (halves & vec4u(0x8000u)) << vec4u(16u);
  let magnitude = halves & vec4u(0x7fffu);
  let normal = (magnitude << vec4u(13u)) + vec4u(112u << 23u);
  let special = (magnitude << vec4u(13u)) | vec4u(0x7f800000u);
  let subnormal = bitcast<vec4u>(vec4f(magnitude) * 0x1p-24f);
  var bits = select(normal, special, magnitude >= vec4u(0x7c00u));
  bits = select(bits, subnormal, magnitude < vec4u(0x400u));
  return bitcast<vec4f>(bits | sign);
}

fn narrow(quad: vec4f) -> Cell {
  let bits = bitcast<vec4u>(quad);
  let sign = (bits >> vec4u(16u)) & vec4u(0x8000u);
  let magnitude = bits & vec4u(0x7fffffffu);

  let normal = (magnitude - vec4u(112u << 23u) + 0xfffu + ((magnitude >> vec4u(13u)) & vec4u(1u))) >> vec4u(13u);

  // Below 2^-14 the unit is 2^-24: shift the mantissa there and round what falls off.
  let drop = min(vec4u(126u) - min(magnitude >> vec4u(23u), vec4u(112u)), vec4u(25u));
  let mantissa = (magnitude & vec4u(0x7fffffu)) | vec4u(0x800000u);
  let below = (vec4u(1u) << (drop - 1u)) - 1u;
  let subnormal = (mantissa + below + ((mantissa >> drop) & vec4u(1u))) >> drop;

  var halves = select(normal, subnormal, magnitude < vec4u(0x38800000u));
  halves = select(halves, vec4u(0x7c00u), magnitude >= vec4u(0x477ff000u));
  let quiet = vec4u(0x7e00u) | ((magnitude >> vec4u(13u)) & vec4u(0x3ffu));
  halves = select(halves, quiet, magnitude > vec4u(0x7f800000u)) | sign;
  return halves.xz | (halves.yw << vec2u(16u));
}
