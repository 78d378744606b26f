// storage/float32: elements lie as they are; a cell is four of them.

alias Cell = vec4f;
alias Word = f32;

fn widen(cell: Cell) -> vec4f {
  return cell;
}

fn narrow(quad: vec4f) -> Cell {
  return quad;
}
