// Everything is in metal_stdlib.
