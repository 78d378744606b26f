"""The back ends, one file each: a `survey()` of what it can open, and a class with the verbs of `device.Backend`."""
