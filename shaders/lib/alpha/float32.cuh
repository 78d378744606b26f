// alpha/float32: alpha in float32, beside x in 16 bits.
// Needs: lib/cell.

typedef float A;
typedef Columns AlphaCell;
