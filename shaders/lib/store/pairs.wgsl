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
  let cell = narrow(quad);
  let word = 2u * (row.cell + q);
  let column = column_of(row, q);
  var before = 0u;
  if (row.shift % 2u == 1u && q == 0u) {
    before = seam[thread / TEAM];
  }
  store_pair(row, word, column, cell.x, before);
  store_pair(row, word + 1u, column + 2u, cell.y, before);
  let end = row.shift + row.length;
  if (end % 2u == 1u && q == end / 4u) {
    seam[thread / TEAM] = select(cell.x, cell.y, end % 4u == 3u) & 0xffffu;
  }
}

fn store_pair(row: Row, word: u32, column: u32, pair: u32, before: u32) {
  let low = column < row.length;
  let high = column + 1u < row.length;
  let waits = low && !high && row.index + 1u < sizes.row_count;
  if ((low || high) && !waits) {
    dx[word] = select(before, pair & 0xffffu, low) | select(0u, pair & 0xffff0000u, high);
  }
}
