// row: a row and a thread's cells of it.
//
// A team of TEAM threads shares a row; cell k of a thread is the row's cell k * TEAM + lane, so that a warp's accesses
// lie side by side. An operand's cells stay in registers, as they are stored, where the plan has room for them (KEEP);
// elsewhere they are read again.
// Needs: TEAM, CELLS; lib/cell.

struct Row {
  long long index;
  long long cell;  // the buffer's cell in which the row begins
  int cells;       // 0 for a row that is not there
};

__device__ inline int lane_of_team() { return threadIdx.x % TEAM; }

__device__ inline Row row_at(long long index, long long stop, int d) {
  return {index, index * (d / WIDTH), index < stop ? d / WIDTH : 0};
}

// How often a thread goes round a row: constant where something is kept, so that registers can be told apart.
__device__ inline int steps_of(const Row& row) { return CELLS > 0 ? CELLS : (row.cells + TEAM - 1) / TEAM; }

// Whether the thread's cell k is one of the row's.
__device__ inline bool inside(const Row& row, int k) { return k * TEAM + lane_of_team() < row.cells; }

template <bool KEEP>
struct Operand {
  const Cell* cells;
  Cell kept[KEEP ? CELLS : 1];

  __device__ Operand(const F* buffer, const Row& row)
      : cells((const Cell*)buffer + row.cell + lane_of_team()) {}

  // Cell k of the row; only where it is `inside`.
  __device__ Cell read(int k) {
    const Cell cell = cells[k * TEAM];
    if (KEEP) kept[k] = cell;
    return cell;
  }

  // The same, once it has been read.
  __device__ Cell again(int k) const { return KEEP ? kept[k] : cells[k * TEAM]; }
};

__device__ inline void store(F* buffer, const Row& row, int k, const Cell& cell) {
  ((Cell*)buffer)[row.cell + k * TEAM + lane_of_team()] = cell;
}
