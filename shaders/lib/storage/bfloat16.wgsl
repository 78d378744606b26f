// storage/bfloat16: two elements in a word, the even one in its low half; a cell is four elements in two words.
//
// A bfloat16 is the upper half of a float32. Narrowing rounds to nearest even, overflows to Inf and keeps NaN quiet:
// by integers, because WGSL fixes no rounding mode and has no bfloat16.

alias Cell = vec2u;
alias Word = u32;

fn widen(cell: Cell) -> vec4f {
  return bitcast<vec4f>(vec4u(cell.x << 16u, cell.x & 0xffff0000u, cell.y << 16u, cell.y & 0xffff0000u));
}

fn narrow(quad: vec4f) -> Cell {
  let bits = bitcast<vec4u>(quad);
  let rounded = (bits + 0x7fffu + ((bits >> vec4u(16u)) & vec4u(1u))) >> vec4u(16u);
  let quiet = (bits >> vec4u(16u)) | vec4u(0x40u);
  let is_nan = (bits & vec4u(0x7fffffffu)) > vec4u(0x7f800000u);
  let halves = select(rounded, quiet, is_nan);
  return halves.xz | (halves.yw << vec2u(16u));
}
