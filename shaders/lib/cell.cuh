// cell: the elements that a thread reads and writes by one access.
//
// WIDTH elements fill 16 bytes where rows and buffers begin with a cell; elsewhere a cell is one element.
// Needs: lib/storage; WIDTH.

struct alignas(WIDTH * sizeof(F)) Cell {
  F at[WIDTH];
};

static_assert(WIDTH == 1 || WIDTH * sizeof(F) == 16, "a cell is one element or one access");

// The float32 sums, or float32 scales, of a cell's columns: more than one access where F has 16 bits.
struct alignas(WIDTH * 4 < 16 ? WIDTH * 4 : 16) Columns {
  float at[WIDTH];
};

__device__ inline float widen(float stored) { return stored; }
