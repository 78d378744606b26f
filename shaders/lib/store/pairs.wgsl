// store/pairs: writes dx of 16-bit rows that share their outer cells with their neighbours, word by word.
//
// Where d is odd, an even row and the next share a word. A team takes the two in turn (ROWS_IN_TURN = 2): the even
// row's last element waits in `seam` and goes out with the odd row's first, so no word is written twice and nothing
// races. The barriers of the odd row's sums lie between. A window begins with an even row.
// Needs: dx, sizes.row_count; TEAM, TEAMS; lib/row, lib/storage.

alias Stored = Word;

var<workgroup> seam: array<u32, TEAMS>;

// Each word has one store: llvmpipe goes through every store lane by lane, whether a branch takes it or not.
fn store(row: Row, q: u32, quad: vec4f, thread: u32) {
  let team = thread / TEAM;
  let column = vec2u(column_of(row, q)) + vec2u(0u, 2u);
  let low = column < vec2u(row.length);
  let high = column + vec2u(1u) < vec2u(row.length);
  let first = high & !low;
  let last = low & !high;
  let waits = last & vec2<bool>(row.index + 1u < sizes.row_count);

  var words = select(narrow(quad), narrow(quad) & vec2u(0xffffu), last);
  if (any(first)) {
    words = select(words, vec2u(seam[team]) | (words & vec2u(0xffff0000u)), first);
  }
  if (any(waits)) {
    seam[team] = select(words.y, words.x, waits.x);
  }
  let written = (low | high) & !waits;
  let word = 2u * (row.cell + q);
  if (written.x) {
    dx[word] = words.x;
  }
  if (written.y) {
    dx[word + 1u] = words.y;
  }
}
