// alpha/storage: alpha in the storage type of x.
// Needs: lib/cell.

typedef F A;
typedef Cell AlphaCell;
